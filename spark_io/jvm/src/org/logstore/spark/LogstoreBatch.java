package org.logstore.spark;

import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.util.SerializableConfiguration;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.log.Split;
import org.logstore.spark.plan.PlannedColumns;
import org.logstore.spark.plan.PlannedSplits;

/**
 * The tasks of a batch read.
 *
 * <p>Two that read the same columns of the same load are equal: Spark then reads them once.
 *
 * @param kept the numbers of the columns
 */
record LogstoreBatch(Load load, List<Integer> kept) implements Batch {
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
    List<ColumnSpec> columns = kept.stream().map(planned.columns()::get).toList();
    boolean isRemote = load.splits().splits().stream().anyMatch(each -> each.blocks().length > 0);
    return new SplitReaderFactory(
        columns.toArray(ColumnSpec[]::new),
        planned.checkedBeside(columns).toArray(ColumnSpec[]::new),
        planned.mode(),
        planned.failOnDataLoss(),
        // Hadoop's settings are large: they go to tasks that need them.
        new SerializableConfiguration(isRemote ? load.hadoop() : new Configuration(false)));
  }
}
