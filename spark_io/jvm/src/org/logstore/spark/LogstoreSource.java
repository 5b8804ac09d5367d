package org.logstore.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.logstore.spark.plan.Planner;

/**
 * {@code spark.read.format("logstore")} where the jar is: it takes the place of the Python source
 * of this name, and hands on to it what it does not do itself.
 */
public final class LogstoreSource implements TableProvider, DataSourceRegister {
  static final String NAME = "logstore";

  /**
   * Why the Python source must read; empty: not known that it must. Spark uses one for one load.
   */
  private String whyPython = "";

  /** Spark makes one for each load. */
  public LogstoreSource() {}

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    if (isForPython(options)) {
      return new PythonSource().inferSchema(options);
    }
    Planner.Schema found = Planner.ofSession().schema(options.asCaseSensitiveMap());
    whyPython = found.whyPython();
    return whyPython.isEmpty() ? found.schema() : new PythonSource().inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    boolean forPython = isForPython(new CaseInsensitiveStringMap(options));
    return new LogstoreTable(schema, forPython ? "option 'reader' is python" : whyPython);
  }

  /** Whether the options say so: then it works also without a planner. */
  private static boolean isForPython(CaseInsensitiveStringMap options) {
    return "python".equalsIgnoreCase(options.get("reader"));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
