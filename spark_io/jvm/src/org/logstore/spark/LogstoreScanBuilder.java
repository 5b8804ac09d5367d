package org.logstore.spark;

import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;
import org.logstore.spark.columns.ColumnSpec.Kind;
import org.logstore.spark.columns.Mode;
import org.logstore.spark.plan.PlannedColumns;

/**
 * Decides what a query reads of a load.
 *
 * <p>Spark prunes columns of a batch, also where it needs all of them, and not of a stream: until
 * then it is not known which of both it is.
 *
 * <p>Invariant: pruning changes no row. A field is read though no query wants it where a value that
 * is malformed drops the record, ends the query, or is shown in the column for corrupt records.
 */
final class LogstoreScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns {
  private final Load load;
  private Set<String> required;

  LogstoreScanBuilder(Load load) {
    this.load = load;
  }

  @Override
  public void pruneColumns(StructType wanted) {
    required = new TreeSet<>(Arrays.asList(wanted.fieldNames()));
  }

  @Override
  public Scan build() {
    if (required == null) {
      return new UnprunedScan(load);
    }
    String why = load.whyPython();
    if (!why.isEmpty()) {
      return new PythonScan(load, why);
    }
    PlannedColumns planned = load.columns();
    int[] kept =
        java.util.stream.IntStream.range(0, planned.columns().size())
            .filter(at -> isRead(planned, at))
            .toArray();
    return new LogstoreScan(load, kept);
  }

  private boolean isRead(PlannedColumns planned, int at) {
    if (required.contains(planned.columns().get(at).name())) {
      return true;
    }
    return planned.columns().get(at).kind() == Kind.FIELD
        && (planned.mode() != Mode.PERMISSIVE || showsCorrupt(planned));
  }

  private boolean showsCorrupt(PlannedColumns planned) {
    return planned.columns().stream()
        .anyMatch(each -> each.kind() == Kind.CORRUPT && required.contains(each.name()));
  }
}
