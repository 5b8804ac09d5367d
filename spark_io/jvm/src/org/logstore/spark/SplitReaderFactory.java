package org.logstore.spark;

import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.SerializableConfiguration;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.Mode;
import org.logstore.spark.plan.PlannedColumns;

/**
 * Makes the readers of splits, in tasks.
 *
 * @param checked columns that no query wants, whose values must be of their types
 * @param hadoop Hadoop's settings, for stores at URIs
 * @param limit after so many rows a task may stop; -1: after none
 */
record SplitReaderFactory(
    ColumnSpec[] columns,
    ColumnSpec[] checked,
    Mode mode,
    boolean failOnDataLoss,
    SerializableConfiguration hadoop,
    int limit)
    implements PartitionReaderFactory {
  /**
   * For the tasks of a load.
   *
   * @param kept the numbers of the columns that are read
   * @param isRemote whether splits are of a store at a URI
   * @param limit after so many rows a task may stop; -1: after none
   */
  static SplitReaderFactory of(Load load, List<Integer> kept, boolean isRemote, int limit) {
    PlannedColumns planned = load.columns();
    List<ColumnSpec> columns = kept.stream().map(load::column).toList();
    return new SplitReaderFactory(
        columns.toArray(ColumnSpec[]::new),
        planned.checkedBeside(columns).toArray(ColumnSpec[]::new),
        planned.mode(),
        planned.failOnDataLoss(),
        // Hadoop's settings are large: they go to tasks that need them.
        new SerializableConfiguration(isRemote ? load.hadoop() : new Configuration(false)),
        limit);
  }

  /**
   * Whether only the number of rows is wanted. Where losses are allowed each node is read: the
   * entries of one that is damaged are not counted.
   */
  boolean counts() {
    return columns.length + checked.length == 0 && failOnDataLoss;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("logstore is read in columns");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new SplitReader((SplitPartition) partition, this);
  }
}
