package org.logstore.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.FloatType;

/** A column of floating point numbers; a float is kept as the double that it is. */
final class DoubleColumn extends Column {
  private final DoubleText reader;
  private double[] values = new double[0];

  DoubleColumn(DataType type) {
    super(type);
    reader = new DoubleText(type instanceof FloatType);
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
    reader.read(number);
    put(row, reader.value);
    return true;
  }

  private void put(int row, double value) {
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
      values = new double[capacity];
    }
  }

  @Override
  public float getFloat(int row) {
    return (float) values[row];
  }

  @Override
  public double getDouble(int row) {
    return values[row];
  }
}
