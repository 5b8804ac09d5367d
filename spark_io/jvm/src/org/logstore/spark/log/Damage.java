package org.logstore.spark.log;

/**
 * A node cannot be read: a CorruptionError of one kind or another.
 *
 * <p>Where the node stands is known to who reads it, and is not said here.
 */
final class Damage extends Exception {
  private static final long serialVersionUID = 1;

  private final String kind;

  Damage(String kind, String message) {
    super(message, null, false, false);
    this.kind = kind;
  }

  /** The name of the class of {@code logstore.errors}. */
  String kind() {
    return kind;
  }

  /** The rules of a listpack, or of a node, are broken. */
  static Damage ofNode(String message) {
    return new Damage("CorruptNodeError", message);
  }

  static Damage ofFrame(String message) {
    return new Damage("CorruptFrameError", message);
  }
}
