package org.logstore.spark.log;

/**
 * Takes entries out of nodes, value by value.
 *
 * <p>For each entry there is {@link #begin}, then its values in order, then {@link #end}. Bytes
 * that are handed over may be used only until the call returns. What a sink does not take it leaves
 * as it is here: it reads no column, and does nothing.
 */
public interface EntrySink {
  /** The number of a field that no column reads. */
  int NONE = -1;

  /** The stream of the entries that follow. */
  default void stream(byte[] name) {}

  /** The number by which values of a field are put, or {@link #NONE} if no column reads it. */
  default int field(byte[] data, int offset, int length) {
    return NONE;
  }

  /** Whether {@link #pair} is to be called before each value: a column shows whole entries. */
  default boolean wantsPairs() {
    return false;
  }

  /** An entry begins; its node is in a segment at an offset (both 0 if it is in none). */
  default void begin(long ms, long seq, int segment, long nodeOffset) {}

  /** The name of the field whose value is put next. */
  default void pair(byte[] data, int offset, int length) {}

  /** A value that is text. The last one of an entry's equal fields counts. */
  default void text(int field, byte[] data, int offset, int length) {}

  /** A value that is stored as a whole number; as text it is its decimal digits. */
  default void number(int field, long value) {}

  /** The entry is whole. */
  default void end() {}

  /** At most so many entries are counted at once. */
  int COUNTED_MAX = 1 << 14;

  /**
   * Whether no column is wanted, and only the number of rows is asked for. Then there is {@link
   * #count}, and neither {@link #begin} nor anything else of an entry.
   */
  default boolean counts() {
    return false;
  }

  /** Adds rows without columns, at most {@link #COUNTED_MAX}. */
  default void count(int rows) {
    throw new UnsupportedOperationException();
  }

  /** How many rows there are. */
  int rows();

  /**
   * Takes back all rows from a number on, also one that has begun and is not whole: their node is
   * damaged.
   */
  void backTo(int rows);

  /** Whether the batch is to be taken before more is put. */
  boolean isFull();
}
