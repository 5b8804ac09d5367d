package org.logstore.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import org.logstore.spark.LogstoreException;

/**
 * The version of this jar: it works with the Python package of exactly the same version.
 *
 * <p>The jar's manifest has it, beside the version of the store's format that it reads.
 */
final class JarVersion {
  private JarVersion() {}

  /** The version; empty of classes that are in no jar. */
  static String version() {
    String found = JarVersion.class.getPackage().getImplementationVersion();
    return found == null ? "" : found;
  }

  /** The newest version of the format that it reads; empty of classes that are in no jar. */
  static String format() {
    String found = JarVersion.class.getPackage().getSpecificationVersion();
    return found == null ? "" : found;
  }

  /** Throws unless this jar goes with a planner, by its first line. */
  static void check(JsonNode hello, String python) {
    String other = hello.path("version").asText("");
    String format = hello.path("format").asText("");
    if (version().equals(other) && format().equals(format)) {
      return;
    }
    throw new LogstoreException(
        "OptionError",
        "the jar of the reader in the JVM is of logstore "
            + told(version(), format())
            + ", and "
            + python
            + " has logstore "
            + told(other, format)
            + ": put the path that logstore.spark_io.jar() gives in that Python into spark.jars,"
            + " or leave the jar out and the Python source reads");
  }

  private static String told(String version, String format) {
    return version.isEmpty()
        ? "an unknown version"
        : version + " (format " + (format.isEmpty() ? "unknown" : format) + ")";
  }
}
