package org.logstore.spark.columns;

/** Numbers as decimal digits, written into bytes. */
final class Digits {
  /** The most bytes that a number takes. */
  static final int MAX = 20;

  private Digits() {}

  /** Writes a signed number; where it ends. There must be room for MAX bytes. */
  static int put(long number, byte[] to, int at) {
    if (number >= 0) {
      return putUnsigned(number, to, at);
    }
    to[at] = '-';
    return putUnsigned(-number, to, at + 1); // the least number negated is itself, and right
  }

  /** Writes a number whose 64 bits are unsigned; where it ends. */
  static int putUnsigned(long number, byte[] to, int at) {
    if (number < 0) {
      long tens = (number >>> 1) / 5;
      int end = putUnsigned(tens, to, at);
      to[end] = (byte) ('0' + (number - tens * 10));
      return end + 1;
    }
    int end = at + length(number);
    int place = end;
    while (number >= 10) {
      long tens = number / 10;
      to[--place] = (byte) ('0' + (number - tens * 10));
      number = tens;
    }
    to[--place] = (byte) ('0' + number);
    return end;
  }

  private static int length(long number) {
    int found = 1;
    long limit = 10;
    while (found < 19 && number >= limit) {
      found++;
      limit *= 10;
    }
    return found;
  }

  /** The digits of a signed number. */
  static byte[] of(long number) {
    byte[] room = new byte[MAX];
    return java.util.Arrays.copyOf(room, put(number, room, 0));
  }
}
