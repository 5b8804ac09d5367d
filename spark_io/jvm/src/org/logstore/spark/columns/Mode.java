package org.logstore.spark.columns;

/** What becomes of an entry with a value that is not of its column's type. */
public enum Mode {
  /** The value is null, and the entry is shown in the column for such entries, if there is one. */
  PERMISSIVE,
  /** The entry is left out. */
  DROPMALFORMED,
  /** It is an error. */
  FAILFAST
}
