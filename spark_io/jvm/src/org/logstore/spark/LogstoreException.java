package org.logstore.spark;

/**
 * An error that says what is wrong, where, and what to do.
 *
 * <p>It stands for an error of {@code logstore.errors}; {@link #kind} is the name of that class. It
 * is an IllegalArgumentException for pyspark: of that it shows the message alone, and of other
 * classes that it does not know a page of Java first.
 */
public class LogstoreException extends IllegalArgumentException {
  private static final long serialVersionUID = 1;

  private final String kind;

  /** An error of a kind, such as CorruptNodeError; the message has stream, segment and offset. */
  public LogstoreException(String kind, String message) {
    super(kind + ": " + message);
    this.kind = kind;
  }

  /** The same, with what caused it. */
  public LogstoreException(String kind, String message, Throwable cause) {
    super(kind + ": " + message, cause);
    this.kind = kind;
  }

  /** The name of the class of {@code logstore.errors}. */
  public String kind() {
    return kind;
  }
}
