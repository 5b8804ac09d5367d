package org.logstore.spark;

import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.logstore.spark.plan.PlannedStream;

/** A read of some of the columns of a load, by the JVM. */
final class LogstoreScan implements Scan {
  private final Load load;
  private final List<Integer> kept;

  /** The scan of the columns with these numbers. */
  LogstoreScan(Load load, List<Integer> kept) {
    this.load = load;
    this.kept = kept;
  }

  @Override
  public String description() {
    String columns =
        Arrays.stream(readSchema().fieldNames()).collect(Collectors.joining(", ", "[", "]"));
    String stores = String.join(", ", load.columns().shown());
    return "logstore (read by the JVM) " + stores + " " + columns;
  }

  @Override
  public StructType readSchema() {
    StructField[] fields = load.schema().fields();
    return new StructType(kept.stream().map(at -> fields[at]).toArray(StructField[]::new));
  }

  @Override
  public Batch toBatch() {
    return new LogstoreBatch(load, kept);
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new LogstoreStream(this, new PlannedStream(load.planner(), load.given()));
  }

  /** What reads a split of a streaming query, which is of a store in a directory. */
  PartitionReaderFactory streamReaderFactory() {
    return SplitReaderFactory.of(load, kept, false);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED; // told without a plan
  }
}
