package org.logstore.spark.log;

import java.io.Closeable;
import org.logstore.spark.LogstoreException;

/** Gives bytes of a store's segments, unchecked. */
interface SegmentBytes extends Closeable {
  /** The bytes of a segment from its begin on; Damage if its file was lost. */
  long sizeBytes(long segment) throws Damage;

  /**
   * Reads up to a size from a position on into the begin of an array; less only where the file
   * ends, or with {@code upToDamage} where the disk does not give bytes back.
   */
  int read(byte[] into, int size, long position, boolean upToDamage) throws Damage;

  @Override
  void close();

  /** The error for a segment that is gone and that no pin holds. */
  static LogstoreException removed(long segment) {
    return new LogstoreException(
        "SnapshotExpiredError",
        ErrorText.at(
            "a segment that this snapshot names was removed: load again", null, segment, null));
  }
}
