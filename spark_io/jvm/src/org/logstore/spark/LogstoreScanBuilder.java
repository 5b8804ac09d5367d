package org.logstore.spark;

import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;

/**
 * Decides which columns of a load a query reads.
 *
 * <p>Spark also makes one for a streaming query, and does not say which of both it is until the
 * scan is asked for a batch or a stream.
 */
final class LogstoreScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns {
  private final Load load;
  private Set<String> required;

  LogstoreScanBuilder(Load load) {
    this.load = load;
    required = new TreeSet<>(Arrays.asList(load.schema().fieldNames()));
  }

  @Override
  public void pruneColumns(StructType wanted) {
    required = new TreeSet<>(Arrays.asList(wanted.fieldNames()));
  }

  @Override
  public Scan build() {
    String why = load.whyPython();
    if (!why.isEmpty()) {
      return new PythonScan(load, why);
    }
    String[] names = load.schema().fieldNames();
    List<Integer> kept =
        IntStream.range(0, names.length)
            .filter(at -> required.contains(names[at]))
            .boxed()
            .toList();
    return new LogstoreScan(load, kept);
  }
}
