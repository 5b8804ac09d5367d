package org.logstore.spark.log;

/** The ID of an entry: two unsigned numbers. */
record Id(long ms, long seq) implements Comparable<Id> {
  @Override
  public int compareTo(Id other) {
    int found = Long.compareUnsigned(ms, other.ms);
    return found != 0 ? found : Long.compareUnsigned(seq, other.seq);
  }

  static Id max(Id one, Id other) {
    return one.compareTo(other) >= 0 ? one : other;
  }

  static Id min(Id one, Id other) {
    return one.compareTo(other) <= 0 ? one : other;
  }

  /** Whether one ID, in parts, is below another. */
  static boolean below(long ms, long seq, long otherMs, long otherSeq) {
    return ms == otherMs
        ? seq + Long.MIN_VALUE < otherSeq + Long.MIN_VALUE
        : ms + Long.MIN_VALUE < otherMs + Long.MIN_VALUE;
  }

  @Override
  public String toString() {
    return Long.toUnsignedString(ms) + "-" + Long.toUnsignedString(seq);
  }
}
