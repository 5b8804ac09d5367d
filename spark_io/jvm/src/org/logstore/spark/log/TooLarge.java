package org.logstore.spark.log;

import org.logstore.spark.LogstoreException;

/** The error for what is larger than an array of the JVM, which no file system of ours makes. */
final class TooLarge {
  private TooLarge() {}

  static LogstoreException toRead(String what, long sizeBytes) {
    return new LogstoreException(
        "TooLargeError",
        what
            + " has "
            + sizeBytes
            + " bytes, more than the JVM reads at once: read it with option reader=python");
  }
}
