package org.logstore.spark;

import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.logstore.spark.plan.PlannedStream;

/** A read of some of a load, by the JVM. */
final class LogstoreScan implements Scan {
  private final Load load;
  private final List<Integer> kept;
  private final Asked asked;
  private final String pushed;

  /**
   * A scan.
   *
   * @param kept the numbers of the columns
   * @param pushed what the plan of the query says of {@code asked}
   */
  LogstoreScan(Load load, List<Integer> kept, Asked asked, String pushed) {
    this.load = load;
    this.kept = kept;
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

  @Override
  public Batch toBatch() {
    return new LogstoreBatch(load, kept, asked);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    if (!asked.equals(Asked.ALL)) {
      throw new IllegalStateException("a stream was asked for a part of its rows");
    }
    return new LogstoreStream(this, new PlannedStream(load.planner(), load.given()));
  }

  /** What reads a split of a streaming query, which is of a store in a directory. */
  PartitionReaderFactory streamReaderFactory() {
    return SplitReaderFactory.of(load, kept, false, -1);
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
