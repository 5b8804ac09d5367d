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

  @Override
  public void stream(byte[] name) {}

  @Override
  public int field(byte[] data, int offset, int length) {
    return NONE;
  }

  @Override
  public boolean wantsPairs() {
    return false;
  }

  @Override
  public void begin(long ms, long seq, int segment, long nodeOffset) {}

  @Override
  public void pair(byte[] data, int offset, int length) {}

  @Override
  public void text(int field, byte[] data, int offset, int length) {}

  @Override
  public void number(int field, long value) {}

  @Override
  public void end() {}
}
