package org.logstore.spark.log;

import java.io.Serializable;

/** The ID of an entry: two unsigned numbers. */
public record Id(long ms, long seq) implements Comparable<Id>, Serializable {
  /** The smallest ID. */
  public static final Id LEAST = new Id(0, 0);

  /** The largest ID. */
  public static final Id MOST = new Id(-1, -1);

  @Override
  public int compareTo(Id other) {
    int found = Long.compareUnsigned(ms, other.ms);
    return found != 0 ? found : Long.compareUnsigned(seq, other.seq);
  }

  /** The larger of two. */
  public static Id max(Id one, Id other) {
    return one.compareTo(other) >= 0 ? one : other;
  }

  static Id min(Id one, Id other) {
    return one.compareTo(other) <= 0 ? one : other;
  }

  /** The ID behind this one, which is not the largest. */
  Id next() {
    return seq == -1 ? new Id(ms + 1, 0) : new Id(ms, seq + 1);
  }

  /** The ID before this one, which is not the smallest. */
  Id previous() {
    return seq == 0 ? new Id(ms - 1, -1) : new Id(ms, seq - 1);
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
