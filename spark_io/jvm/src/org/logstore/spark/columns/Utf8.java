package org.logstore.spark.columns;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/**
 * Which bytes are UTF-8, and what stands for those that are not.
 *
 * <p>As Python's {@code decode("utf-8", "replace")} does it, each longest start of a sequence that
 * does not go on becomes one U+FFFD. (Java's own decoder makes one of a whole surrogate.)
 */
final class Utf8 {
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long HIGH_BITS = 0x8080808080808080L;

  private Utf8() {}

  /** Whether all of the bytes are UTF-8. */
  static boolean isValid(byte[] data, int offset, int length) {
    int end = offset + length;
    int at = asciiEnd(data, offset, end);
    while (at < end) {
      int step = step(data, at, end);
      if (step < 0) {
        return false;
      }
      at += step;
    }
    return true;
  }

  /** Where the first eight bytes that are not all ASCII begin; at most the end. */
  private static int asciiEnd(byte[] data, int at, int end) {
    while (at + 8 <= end) {
      if (((long) LONG.get(data, at) & HIGH_BITS) != 0) {
        return at;
      }
      at += 8;
    }
    return at;
  }

  /** The bytes with U+FFFD in the place of what is no UTF-8. */
  static byte[] replaced(byte[] data, int offset, int length) {
    int end = offset + length;
    long size = 0;
    for (int at = offset; at < end; ) {
      int step = step(data, at, end);
      size += step < 0 ? 3 : step;
      at += Math.abs(step);
    }
    if (size > TextColumn.BYTES_MAX) {
      throw TextColumn.tooLarge();
    }
    byte[] found = new byte[(int) size];
    int to = 0;
    for (int at = offset; at < end; ) {
      int step = step(data, at, end);
      if (step < 0) {
        found[to++] = (byte) 0xEF;
        found[to++] = (byte) 0xBF;
        found[to++] = (byte) 0xBD;
      } else {
        System.arraycopy(data, at, found, to, step);
        to += step;
      }
      at += Math.abs(step);
    }
    return found;
  }

  /**
   * The length of the sequence that begins here; below zero, negated, how many bytes are none
   * together.
   */
  private static int step(byte[] data, int at, int end) {
    int first = data[at] & 0xFF;
    if (first < 0x80) {
      return 1;
    }
    if (first < 0xC2 || first > 0xF4) {
      return -1;
    }
    int low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    int high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    for (int i = 1; i < size; i++) {
      if (at + i == end) {
        return -i;
      }
      int next = data[at + i] & 0xFF;
      if (next < low || next > high) {
        return -i;
      }
      low = 0x80;
      high = 0xBF;
    }
    return size;
  }
}
