package org.logstore.spark.columns;

/** Reads texts as values of one type that fit into a long. */
abstract class LongText {
  /** What was read last. */
  long value;

  /** Reads a text that is not empty; false: it is not of the type. */
  abstract boolean read(byte[] data, int offset, int length);

  /** The same of the decimal digits of a number. */
  abstract boolean read(long number);
}
