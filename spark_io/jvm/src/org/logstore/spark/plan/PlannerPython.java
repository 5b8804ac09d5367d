package org.logstore.spark.plan;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;

/**
 * Which Python plans for a session, and where it finds pyspark.
 *
 * <p>It is the one that {@code logstore.spark_io.register} named, else the driver's, as Spark is
 * set up; one that is no plain Python (Jupyter) is passed over.
 */
final class PlannerPython {
  /** The setting of the session that names it. */
  static final String PYTHON = "spark.logstore.python";

  static final String ADVICE =
      "it must be a Python with logstore and its extra 'spark': see that it is, or name another"
          + " one as "
          + PYTHON;

  private static final String[] SETTINGS = {"spark.pyspark.driver.python", "spark.pyspark.python"};
  private static final String[] VARIABLES = {"PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"};

  private PlannerPython() {}

  /** The command of a session's Python. */
  static String of(SparkSession session) {
    String named = session.conf().get(PYTHON, "");
    if (!named.isEmpty()) {
      return named;
    }
    for (String key : SETTINGS) {
      String found = session.sparkContext().getConf().get(key, "");
      if (isPlain(found)) {
        return found;
      }
    }
    for (String name : VARIABLES) {
      String found = System.getenv().getOrDefault(name, "");
      if (isPlain(found)) {
        return found;
      }
    }
    return "python3";
  }

  private static boolean isPlain(String command) {
    String name = new File(command).getName();
    return !name.isEmpty() && !name.startsWith("jupyter") && !name.startsWith("ipython");
  }

  /** The variables of the process beside those of this one: pyspark of Spark's own folder. */
  static Map<String, String> environment() {
    Map<String, String> found = new HashMap<>();
    String home = System.getenv().getOrDefault("SPARK_HOME", System.getProperty("spark.home", ""));
    List<String> paths = new ArrayList<>();
    File[] archives = new File(home, "python/lib").listFiles((at, name) -> name.endsWith(".zip"));
    if (!home.isEmpty() && archives != null) {
      Arrays.sort(archives);
      Arrays.stream(archives).map(File::getPath).forEach(paths::add);
    }
    String before = System.getenv().getOrDefault("PYTHONPATH", "");
    if (!paths.isEmpty()) {
      if (!before.isEmpty()) {
        paths.add(before);
      }
      found.put("PYTHONPATH", String.join(File.pathSeparator, paths));
    }
    return found;
  }
}
