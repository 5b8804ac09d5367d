package org.logstore.spark;

import java.lang.reflect.InvocationTargetException;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The source in Python of the same name, by which Spark itself would read.
 *
 * <p>Spark's class for it is not public: it is reached by reflection, and a LogstoreException says
 * so where it is missing, and where no Python source is registered.
 */
final class PythonSource {
  private static final String SPARK_CLASS =
      "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2";
  private static final String READER = "reader";

  private final TableProvider provider;

  PythonSource() {
    try {
      Object made = Class.forName(SPARK_CLASS).getConstructor().newInstance();
      made.getClass().getMethod("setShortName", String.class).invoke(made, LogstoreSource.NAME);
      made.getClass().getMethod("source").invoke(made); // looks for what is registered
      provider = (TableProvider) made;
    } catch (InvocationTargetException error) {
      throw unusable(error.getCause());
    } catch (ReflectiveOperationException | ClassCastException | LinkageError error) {
      throw new LogstoreException(
          "OptionError",
          "this Spark has no "
              + SPARK_CLASS
              + ", by which the Python source would be reached: use Spark 4.0 to 4.3",
          error);
    }
  }

  private static LogstoreException unusable(Throwable cause) {
    if (cause instanceof SparkThrowable known
        && String.valueOf(known.getCondition()).startsWith("DATA_SOURCE_NOT_")) {
      return new LogstoreException(
          "OptionError",
          "the Python source is not registered in this session, and what was asked for is done by"
              + " it: call logstore.spark_io.register(spark) first",
          cause);
    }
    return new LogstoreException("Error", "the Python source cannot be looked up: " + cause, cause);
  }

  StructType inferSchema(CaseInsensitiveStringMap options) {
    return provider.inferSchema(withReader(options));
  }

  /** A scan of all columns of a schema, in a batch or a stream. */
  Scan scan(StructType schema, CaseInsensitiveStringMap options) {
    CaseInsensitiveStringMap own = withReader(options);
    return ((SupportsRead) table(schema, own)).newScanBuilder(own).build();
  }

  WriteBuilder writeBuilder(StructType schema, LogicalWriteInfo info) {
    return ((SupportsWrite) table(schema, info.options())).newWriteBuilder(info);
  }

  private Table table(StructType schema, CaseInsensitiveStringMap options) {
    return provider.getTable(schema, new Transform[0], options.asCaseSensitiveMap());
  }

  /**
   * The options with the reader that was chosen: the Python source need not wonder why it reads.
   */
  private static CaseInsensitiveStringMap withReader(CaseInsensitiveStringMap options) {
    Map<String, String> found = new HashMap<>(options.asCaseSensitiveMap());
    found.keySet().removeIf(READER::equalsIgnoreCase);
    found.put(READER, "python");
    return new CaseInsensitiveStringMap(found);
  }
}
