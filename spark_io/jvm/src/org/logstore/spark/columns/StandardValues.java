package org.logstore.spark.columns;

import org.apache.spark.sql.types.DecimalType;

/** The values of columns that tell of an entry's ID. */
public final class StandardValues {
  /** The last millisecond of the year 9999: a timestamp is no later one. */
  static final long TIMESTAMP_MS_MAX = 253_402_300_799_999L;

  private StandardValues() {}

  /** Up to which unsigned millisecond a column for it is not null. */
  public static long msMost(ColumnSpec column) {
    if (column.kind() == ColumnSpec.Kind.TS) {
      return TIMESTAMP_MS_MAX;
    }
    return column.type() instanceof DecimalType ? -1 : Long.MAX_VALUE;
  }
}
