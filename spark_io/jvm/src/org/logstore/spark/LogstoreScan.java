package org.logstore.spark;

import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportOrdering;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.plan.PlannedStream;

/** A read of some of a load, by the JVM. */
final class LogstoreScan implements SupportsReportStatistics, SupportsReportOrdering {
  private static final int ROW_BYTES = 8; // that Spark takes a row for, beside its columns

  private final Load load;
  private final List<Integer> kept;
  private final List<Integer> keptOfStream;
  private final Asked asked;
  private final String pushed;
  private SortOrder[] order; // null: nobody asked
  private boolean isStream; // it has no plan of its own: each of its batches has one

  /**
   * A scan.
   *
   * @param kept the numbers of the columns
   * @param keptOfStream those that a streaming query reads: Spark 4.0 does not say which of the
   *     columns of places it wants, and takes them behind the others
   * @param pushed what the plan of the query says of {@code asked}
   */
  LogstoreScan(
      Load load, List<Integer> kept, List<Integer> keptOfStream, Asked asked, String pushed) {
    this.load = load;
    this.kept = kept;
    this.keptOfStream = keptOfStream;
    this.asked = asked;
    this.pushed = pushed;
  }

  @Override
  public String description() {
    String columns =
        Arrays.stream(readSchema().fieldNames()).collect(Collectors.joining(", ", "[", "]"));
    String stores = String.join(", ", load.columns().shown());
    return "logstore (read by the JVM) " + stores + " " + columns + pushed;
  }

  @Override
  public StructType readSchema() {
    return new StructType(kept.stream().map(load::field).toArray(StructField[]::new));
  }

  /** An upper limit: what is small enough is sent to all tasks of a join. */
  @Override
  public Statistics estimateStatistics() {
    if (isStream) {
      return new Sizes(OptionalLong.empty(), OptionalLong.empty());
    }
    long entries = 0;
    long logBytes = 0;
    for (Part each : load.parts(asked)) {
      entries += each.entries();
      logBytes += each.sizeBytes();
    }
    StructType schema = readSchema();
    boolean isFixed =
        Arrays.stream(schema.fields()).allMatch(each -> isOfFixedSize(each.dataType()));
    long columnBytes = entries * (ROW_BYTES + (long) schema.defaultSize());
    long sizeBytes = isFixed ? columnBytes : Math.max(columnBytes, logBytes);
    return new Sizes(OptionalLong.of(sizeBytes), OptionalLong.of(entries));
  }

  private record Sizes(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}

  /** Spark asks also where it needs no order. */
  @Override
  public synchronized SortOrder[] outputOrdering() {
    if (order == null) {
      List<ColumnSpec> columns = kept.stream().map(load::column).toList();
      boolean isPossible = !isStream && RowOrder.isPossible(columns);
      order = isPossible ? RowOrder.of(load.parts(asked), columns) : new SortOrder[0];
    }
    return order;
  }

  private static boolean isOfFixedSize(DataType type) {
    return type instanceof NumericType
        || type instanceof DateType
        || type instanceof TimestampType
        || type instanceof BooleanType;
  }

  @Override
  public Batch toBatch() {
    return new LogstoreBatch(load, kept, asked);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    if (!asked.equals(Asked.ALL)) {
      throw new IllegalStateException("a stream was asked for a part of its rows");
    }
    isStream = true;
    return new LogstoreStream(this, new PlannedStream(load.planner(), load.given()));
  }

  /** What reads a split of a streaming query, which is of a store in a directory. */
  PartitionReaderFactory streamReaderFactory() {
    return SplitReaderFactory.of(load, keptOfStream, false, -1);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return Metrics.all();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return Metrics.ofSkipped(load.skipped(asked));
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED; // told without a plan
  }
}
