package org.logstore.spark;

import java.io.IOException;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.logstore.spark.columns.Rows;
import org.logstore.spark.log.EntrySink;
import org.logstore.spark.log.SplitEntries;

/** Reads one split: the entries of the log, put into columns. A batch is good until the next. */
final class SplitReader implements PartitionReader<ColumnarBatch> {
  private final SplitEntries entries;
  private final EntrySink rows;
  private final Supplier<ColumnarBatch> taken;
  private ColumnarBatch batch;
  private final int limit;
  private long given;
  private boolean more = true;

  SplitReader(SplitPartition partition, SplitReaderFactory how) {
    if (how.counts()) {
      RowCount made = new RowCount();
      rows = made;
      taken = made::take;
    } else {
      Rows made = new Rows(how.columns(), how.checked(), how.mode(), partition.shown());
      if (how.limit() >= 0) {
        made.enough(how.limit());
      }
      rows = made;
      taken = made::take;
    }
    entries =
        new SplitEntries(
            partition.split(), partition.selection(), how.failOnDataLoss(), how.hadoop().value());
    limit = how.limit();
  }

  @Override
  public boolean next() {
    while (more && (limit < 0 || given < limit)) {
      more = entries.fill(rows);
      if (rows.rows() > 0) {
        batch = taken.get();
        if (batch.numRows() > 0) { // else all were malformed, and left out
          given += batch.numRows();
          return true;
        }
      }
    }
    return false;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return Metrics.of(entries, given);
  }

  @Override
  public void close() throws IOException {
    entries.close();
    if (batch != null) {
      batch.close();
    }
  }
}
