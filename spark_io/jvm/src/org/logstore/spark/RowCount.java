package org.logstore.spark;

import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.logstore.spark.log.EntrySink;

/** Rows of no columns: how many entries there are, of which none is looked at. */
final class RowCount implements EntrySink {
  private static final int BATCH_ROWS = 1 << 20;

  private int rows;

  /** The rows since the last batch, which may be none. */
  ColumnarBatch take() {
    ColumnarBatch batch = new ColumnarBatch(new ColumnVector[0], rows);
    rows = 0;
    return batch;
  }

  @Override
  public boolean counts() {
    return true;
  }

  @Override
  public void count(int more) {
    rows += more;
  }

  @Override
  public int rows() {
    return rows;
  }

  @Override
  public void backTo(int upto) {
    rows = upto;
  }

  @Override
  public boolean isFull() {
    return rows >= BATCH_ROWS;
  }
}
