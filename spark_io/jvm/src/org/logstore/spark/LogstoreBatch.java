package org.logstore.spark;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.util.SerializableConfiguration;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.log.Split;
import org.logstore.spark.plan.PlannedColumns;
import org.logstore.spark.plan.PlannedSplits;

/** The tasks of a batch read. */
final class LogstoreBatch implements Batch {
  private final Load load;
  private final int[] kept;

  LogstoreBatch(Load load, int[] kept) {
    this.load = load;
    this.kept = kept;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    PlannedSplits planned = load.splits();
    List<Split> splits = planned.splits();
    InputPartition[] found = new InputPartition[splits.size()];
    for (int at = 0; at < found.length; at++) {
      found[at] = new SplitPartition(splits.get(at), planned.shown().get(at));
    }
    return found;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    PlannedColumns planned = load.columns();
    List<ColumnSpec> columns = Arrays.stream(kept).mapToObj(planned.columns()::get).toList();
    return new SplitReaderFactory(
        columns.toArray(ColumnSpec[]::new),
        planned.checkedBeside(columns).toArray(ColumnSpec[]::new),
        planned.mode(),
        planned.failOnDataLoss(),
        new SerializableConfiguration(load.hadoop()));
  }
}
