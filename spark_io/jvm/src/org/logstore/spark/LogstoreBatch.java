package org.logstore.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * The tasks of a batch read.
 *
 * <p>Two that read the same of the same load are equal: Spark then reads it once.
 *
 * @param kept the numbers of the columns
 */
record LogstoreBatch(Load load, List<Integer> kept, Asked asked) implements Batch {
  @Override
  public InputPartition[] planInputPartitions() {
    return SplitPartition.of(load.parts(asked));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    boolean isRemote = load.splits().splits().stream().anyMatch(each -> each.blocks().length > 0);
    return SplitReaderFactory.of(load, kept, isRemote, asked.limit());
  }
}
