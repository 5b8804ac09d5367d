package org.logstore.spark.columns;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Arrays;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;

/** A column of decimals that do not fit into a long. */
final class DecimalColumn extends Column {
  private static final BigInteger TWO_64 = BigInteger.ONE.shiftLeft(64);

  private final DecimalText reader;
  private BigInteger[] values = new BigInteger[0]; // unscaled

  DecimalColumn(DataType type, DecimalText reader) {
    super(type);
    this.reader = reader;
  }

  @Override
  boolean text(int row, byte[] data, int offset, int length) {
    if (reader.read(data, offset, length)) {
      put(row, reader.large);
      return true;
    }
    return putNone(row, length == 0);
  }

  @Override
  boolean number(int row, long number) {
    if (reader.read(number)) {
      put(row, reader.large);
      return true;
    }
    return putNone(row, false);
  }

  /** Puts a number whose 64 bits are unsigned. */
  void putUnsigned(int row, long number) {
    BigInteger found = BigInteger.valueOf(number);
    put(row, number < 0 ? found.add(TWO_64) : found);
  }

  private void put(int row, BigInteger value) {
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
      values = new BigInteger[capacity];
    }
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return isNullAt(row)
        ? null
        : Decimal.apply(
            new scala.math.BigDecimal(new BigDecimal(values[row], scale)), precision, scale);
  }
}
