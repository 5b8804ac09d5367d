package org.logstore.spark.log;

import java.io.Closeable;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;

/** The open files of segments, by number: those that were used last, and at most a few. */
final class OpenFiles<T extends Closeable> extends LinkedHashMap<Long, T> implements Closeable {
  private static final long serialVersionUID = 1;
  private static final int MAX = 16;

  OpenFiles() {
    super(2 * MAX, 0.75f, true);
  }

  @Override
  protected boolean removeEldestEntry(Map.Entry<Long, T> eldest) {
    if (size() <= MAX) {
      return false;
    }
    quietly(eldest.getValue());
    return true;
  }

  /** Lets go of a file that was only read: it says nothing that a read has not said before. */
  static void quietly(Closeable file) {
    try {
      file.close();
    } catch (IOException said) {
      // as above
    }
  }

  @Override
  public void close() {
    values().forEach(OpenFiles::quietly);
    clear();
  }
}
