package org.logstore.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import org.logstore.spark.LogstoreException;

/**
 * A column of text or bytes: one array of bytes, and a start and a length for each row.
 *
 * <p>Invariants: a text is UTF-8, whatever was put; rows may share bytes. The bytes stay below 2
 * GiB, or it is an error.
 */
final class TextColumn extends Column {
  /** As in the Python source: what Arrow's offsets can say. */
  static final int BYTES_MAX = Integer.MAX_VALUE - 16;

  /** A larger array is not kept for the next batch. */
  private static final int KEPT_BYTES = 16 << 20;

  private static final int FIRST_BYTES = 1 << 10;

  private final boolean binary;
  private byte[] data = new byte[FIRST_BYTES];
  private int end;
  private int mark;
  private int[] starts = new int[0];
  private int[] lengths = new int[0];

  // The text that rows share: the bytes, and where they stand; -1: nowhere yet.
  private byte[] shared = new byte[0];
  private int sharedStart = -1;
  private int sharedLength;

  TextColumn(DataType type) {
    super(type);
    binary = type instanceof BinaryType;
  }

  @Override
  boolean text(int row, byte[] from, int offset, int length) {
    int at = room(row, length);
    System.arraycopy(from, offset, data, at, length);
    if (!binary && !Utf8.isValid(data, at, length)) {
      byte[] replaced = Utf8.replaced(from, offset, length);
      at = room(row, replaced.length);
      System.arraycopy(replaced, 0, data, at, replaced.length);
      length = replaced.length;
    }
    put(row, at, length);
    return true;
  }

  @Override
  boolean number(int row, long value) {
    int at = room(row, Digits.MAX);
    put(row, at, Digits.put(value, data, at) - at);
    return true;
  }

  /** Puts the text of an ID. */
  void id(int row, long ms, long seq) {
    int at = room(row, 2 * Digits.MAX + 1);
    int dash = Digits.putUnsigned(ms, data, at);
    data[dash] = '-';
    put(row, at, Digits.putUnsigned(seq, data, dash + 1) - at);
  }

  /** Puts the bytes of an ID, which sort as it does. */
  void key(int row, long ms, long seq) {
    int at = room(row, 16);
    for (int i = 0; i < 8; i++) {
      data[at + i] = (byte) (ms >>> 56 - 8 * i);
      data[at + 8 + i] = (byte) (seq >>> 56 - 8 * i);
    }
    put(row, at, 16);
  }

  /** Says which text {@link #putShared} puts from now on. */
  void share(byte[] text) {
    if (!Arrays.equals(text, shared)) {
      shared = text;
      sharedStart = -1;
    }
  }

  /** Puts the shared text. */
  void putShared(int row) {
    if (sharedStart < 0) {
      text(row, shared, 0, shared.length);
      sharedStart = starts[row];
      sharedLength = lengths[row];
    } else {
      share(row, sharedStart, sharedLength);
    }
  }

  /** Puts what another row has. */
  void copy(int row, int other) {
    share(row, starts[other], lengths[other]);
  }

  private void share(int row, int start, int length) {
    starts[row] = start;
    lengths[row] = length;
    states[row] = VALUE;
  }

  /** Whether a row is this text. */
  boolean equals(int row, byte[] other, int offset, int length) {
    int start = starts[row];
    return lengths[row] == length
        && Arrays.equals(data, start, start + length, other, offset, offset + length);
  }

  /** Whether two rows are the same text. */
  boolean equals(int row, int other) {
    return starts[row] == starts[other] && lengths[row] == lengths[other]
        || equals(row, data, starts[other], lengths[other]);
  }

  /** A text that stays. */
  byte[] copyOf(int row) {
    return Arrays.copyOfRange(data, starts[row], starts[row] + lengths[row]);
  }

  /** Where a value of so many bytes goes: behind the last one, or where the row's last one was. */
  private int room(int row, int length) {
    if (states[row] == VALUE && starts[row] + lengths[row] == end) {
      end = starts[row];
    }
    if (length > data.length - end) {
      widen(length);
    }
    return end;
  }

  private void widen(int length) {
    if (length > BYTES_MAX - end) {
      throw tooLarge();
    }
    int doubled = (int) Math.min(2L * data.length, BYTES_MAX);
    data = Arrays.copyOf(data, Math.max(doubled, end + length));
  }

  static LogstoreException tooLarge() {
    return new LogstoreException(
        "TooLargeError", "a column would pass 2 GiB; finish the batch before this node");
  }

  private void put(int row, int start, int length) {
    starts[row] = start;
    lengths[row] = length;
    states[row] = VALUE;
    end = start + length;
  }

  @Override
  void grow(int capacity) {
    super.grow(capacity);
    starts = Arrays.copyOf(starts, capacity);
    lengths = Arrays.copyOf(lengths, capacity);
  }

  @Override
  void mark() {
    mark = end;
  }

  @Override
  void backToMark(int row) {
    super.backToMark(row);
    end = mark;
  }

  /** The bytes of some rows are left where they are: others may share them. */
  @Override
  void takeBack(int from, int upto) {
    super.takeBack(from, upto);
    if (from == 0) {
      end = 0;
      sharedStart = -1;
    }
  }

  @Override
  void clear(int used, int capacity) {
    super.clear(used, capacity);
    if (starts.length > capacity) {
      starts = new int[capacity];
      lengths = new int[capacity];
    }
    if (data.length > KEPT_BYTES) {
      data = new byte[FIRST_BYTES];
    }
    end = 0;
    sharedStart = -1;
  }

  @Override
  long bytes() {
    return end;
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return isNullAt(row) ? null : UTF8String.fromBytes(data, starts[row], lengths[row]);
  }

  @Override
  public byte[] getBinary(int row) {
    return isNullAt(row) ? null : copyOf(row);
  }
}
