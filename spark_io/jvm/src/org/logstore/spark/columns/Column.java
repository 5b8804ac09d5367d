package org.logstore.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column that grows row by row, and that Spark reads.
 *
 * <p>Invariants: a row that was not put, or was taken back, is null; a row that is put again has
 * the value that was put last. What Spark reads stays as it is until {@link #clear}.
 */
abstract class Column extends ColumnVector {
  static final byte NULL = 0;
  static final byte VALUE = 1;

  /** Null, because what was put is not of the column's type. */
  static final byte MALFORMED = 2;

  /** What each row is; those behind the last row are NULL. */
  byte[] states = new byte[0];

  private int rows;

  Column(DataType type) {
    super(type);
  }

  /** Puts a text into a row; false: it is not of the column's type. */
  abstract boolean text(int row, byte[] data, int offset, int length);

  /** Puts the decimal digits of a number into a row; false: they are not of the column's type. */
  abstract boolean number(int row, long value);

  /** Makes a row null, which no text that is not empty may be; whether it may. */
  final boolean putNone(int row, boolean isEmpty) {
    states[row] = isEmpty ? NULL : MALFORMED;
    return isEmpty;
  }

  /** Makes room for so many rows. */
  void grow(int capacity) {
    states = Arrays.copyOf(states, capacity);
  }

  /** Takes rows back, from one on and up to another. */
  void takeBack(int from, int upto) {
    Arrays.fill(states, from, upto, NULL);
  }

  /** Notes where the next row begins, so that it can be taken back without a trace. */
  void mark() {}

  /** Takes back the row that was begun at the mark. */
  void backToMark(int row) {
    states[row] = NULL;
  }

  /** Makes the column empty, with room for so many rows. */
  void clear(int used, int capacity) {
    if (states.length > capacity) {
      states = new byte[capacity];
    } else {
      Arrays.fill(states, 0, used, NULL);
    }
  }

  /** How many bytes the values have, but for those that each row has. */
  long bytes() {
    return 0;
  }

  /** Says how many rows Spark may read. */
  void seal(int count) {
    rows = count;
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return numNulls() > 0;
  }

  @Override
  public int numNulls() {
    int found = 0;
    for (int row = 0; row < rows; row++) {
      found += states[row] == VALUE ? 0 : 1;
    }
    return found;
  }

  @Override
  public boolean isNullAt(int row) {
    return states[row] != VALUE;
  }

  private UnsupportedOperationException notOfType() {
    return new UnsupportedOperationException("the column is " + type.simpleString());
  }

  @Override
  public boolean getBoolean(int row) {
    throw notOfType();
  }

  @Override
  public byte getByte(int row) {
    throw notOfType();
  }

  @Override
  public short getShort(int row) {
    throw notOfType();
  }

  @Override
  public int getInt(int row) {
    throw notOfType();
  }

  @Override
  public long getLong(int row) {
    throw notOfType();
  }

  @Override
  public float getFloat(int row) {
    throw notOfType();
  }

  @Override
  public double getDouble(int row) {
    throw notOfType();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw notOfType();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw notOfType();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw notOfType();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw notOfType();
  }

  @Override
  public byte[] getBinary(int row) {
    throw notOfType();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw notOfType();
  }
}
