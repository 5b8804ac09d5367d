package org.logstore.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;

/** A column whose values fit into a long: whole numbers, times, booleans, short decimals. */
final class LongColumn extends Column {
  private final LongText reader;
  private long[] values = new long[0];

  LongColumn(DataType type, LongText reader) {
    super(type);
    this.reader = reader;
  }

  @Override
  boolean text(int row, byte[] data, int offset, int length) {
    if (reader.read(data, offset, length)) {
      put(row, reader.value);
      return true;
    }
    return putNone(row, length == 0);
  }

  @Override
  boolean number(int row, long number) {
    if (reader.read(number)) {
      put(row, reader.value);
      return true;
    }
    return putNone(row, false);
  }

  /** Puts a value. */
  void put(int row, long value) {
    values[row] = value;
    states[row] = VALUE;
  }

  @Override
  void grow(int capacity) {
    super.grow(capacity);
    values = Arrays.copyOf(values, capacity);
  }

  @Override
  void clear(int used, int capacity) {
    super.clear(used, capacity);
    if (values.length > capacity) {
      values = new long[capacity];
    }
  }

  @Override
  public boolean getBoolean(int row) {
    return values[row] != 0;
  }

  @Override
  public byte getByte(int row) {
    return (byte) values[row];
  }

  @Override
  public short getShort(int row) {
    return (short) values[row];
  }

  @Override
  public int getInt(int row) {
    return (int) values[row];
  }

  @Override
  public long getLong(int row) {
    return values[row];
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return isNullAt(row) ? null : Decimal.createUnsafe(values[row], precision, scale);
  }
}
