package org.logstore.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.logstore.spark.log.EntrySink;

/**
 * Entries made into batches of columns.
 *
 * <p>Invariants: every entry that is whole is one row, or, if it is malformed and the mode says so,
 * none or an error of {@link #take}. What a text is as a column's type is what the Python source
 * makes of it. A batch is valid until an entry begins behind it; its memory is used again.
 */
public final class Rows implements EntrySink {
  /** Rows of a batch, but for its last node. */
  static final int BATCH_ROWS = 4096;

  /** Bytes of a batch, but for its last node. */
  static final long BATCH_BYTES = 8 << 20;

  /** Room for so many rows is kept for the next batch. */
  private static final int KEPT_ROWS = 4 * BATCH_ROWS;

  private final Column[] columns;
  private final FieldColumns fields;
  private final StandardColumns standard;
  private final Mode mode;
  private final ColumnarBatch batch;

  /** The column for malformed entries, and what it shows; null: there is none, or no need. */
  private final TextColumn corrupt;

  private final EntryText entry;
  private final boolean wantsPairs;

  private int batchRows = BATCH_ROWS;
  private int capacity;
  private int rows;
  private long ms;
  private long seq;
  private boolean mayBeMalformed; // the entry that is being put
  private boolean isTaken; // the rows are those of a batch that Spark has

  /**
   * Rows of some columns.
   *
   * @param columns the columns, in the order of the batch
   * @param mode what becomes of malformed entries
   * @param store what the column for the store shows
   */
  public Rows(ColumnSpec[] columns, Mode mode, String store) {
    this(columns, new ColumnSpec[0], mode, store);
  }

  /**
   * The same, with columns that are read only to see whether an entry is malformed.
   *
   * @param columns the columns, in the order of the batch
   * @param checked the others
   * @param mode what becomes of malformed entries
   * @param store what the column for the store shows
   */
  public Rows(ColumnSpec[] columns, ColumnSpec[] checked, Mode mode, String store) {
    ColumnSpec[] specs = Arrays.copyOf(columns, columns.length + checked.length);
    System.arraycopy(checked, 0, specs, columns.length, checked.length);
    this.columns = new Column[specs.length];
    TextColumn found = null;
    for (int i = 0; i < specs.length; i++) {
      this.columns[i] = Columns.of(specs[i].type());
      if (specs[i].kind() == ColumnSpec.Kind.CORRUPT && mode == Mode.PERMISSIVE) {
        found = (TextColumn) this.columns[i];
      }
    }
    this.mode = mode;
    corrupt = found;
    entry = corrupt == null ? null : new EntryText();
    fields = new FieldColumns(specs, this.columns, mode == Mode.FAILFAST);
    standard = new StandardColumns(specs, this.columns, store);
    wantsPairs = standard.wantsPairs() || entry != null;
    batch = new ColumnarBatch(Arrays.copyOf(this.columns, columns.length, ColumnVector[].class));
    grow(BATCH_ROWS);
  }

  /** Says that so many rows of a batch are enough. */
  public void enough(int most) {
    batchRows = Math.max(1, Math.min(most, BATCH_ROWS));
  }

  @Override
  public void stream(byte[] name) {
    forgetTaken();
    standard.stream(name);
  }

  @Override
  public int field(byte[] data, int offset, int length) {
    return fields.find(data, offset, length);
  }

  @Override
  public boolean wantsPairs() {
    return wantsPairs;
  }

  @Override
  public void begin(long ms, long seq, int segment, long nodeOffset) {
    forgetTaken();
    if (rows == capacity) {
      grow(2 * capacity);
    }
    this.ms = ms;
    this.seq = seq;
    mayBeMalformed = false;
    if (mode == Mode.DROPMALFORMED) {
      for (Column each : columns) {
        each.mark();
      }
    }
    standard.begin(segment, nodeOffset);
    if (entry != null) {
      entry.begin();
    }
  }

  @Override
  public void pair(byte[] data, int offset, int length) {
    standard.name(data, offset, length);
    if (entry != null) {
      entry.name(data, offset, length);
    }
  }

  @Override
  public void text(int field, byte[] data, int offset, int length) {
    if (field != NONE && !fields.text(field, rows, data, offset, length)) {
      mayBeMalformed = true;
    }
    if (wantsPairs) {
      standard.text(rows, data, offset, length);
      if (entry != null) {
        entry.value(data, offset, length);
      }
    }
  }

  @Override
  public void number(int field, long value) {
    if (field != NONE && !fields.number(field, rows, value)) {
      mayBeMalformed = true;
    }
    if (wantsPairs) {
      standard.number(rows, value);
      if (entry != null) {
        byte[] digits = Digits.of(value);
        entry.value(digits, 0, digits.length);
      }
    }
  }

  @Override
  public void end() {
    if (mayBeMalformed && fields.isMalformed(rows)) {
      if (mode == Mode.DROPMALFORMED) {
        drop();
        return;
      }
      if (entry != null) {
        entry.put(corrupt, rows, ms, seq);
      }
    }
    standard.end(rows, ms, seq);
    rows++;
  }

  /** Leaves out the entry that is being put. */
  private void drop() {
    standard.drop();
    for (Column each : columns) {
      each.backToMark(rows);
    }
  }

  @Override
  public int rows() {
    return isTaken ? 0 : rows;
  }

  @Override
  public void backTo(int rows) {
    forgetTaken();
    int upto = Math.min(this.rows + 1, capacity); // the last one may not be whole
    for (Column each : columns) {
      each.takeBack(rows, upto);
    }
    fields.forget(rows);
    this.rows = rows;
  }

  @Override
  public boolean isFull() {
    if (isTaken || rows == 0) {
      return false;
    }
    if (rows >= batchRows) {
      return true;
    }
    long bytes = 0;
    for (Column each : columns) {
      bytes += each.bytes();
    }
    return bytes >= BATCH_BYTES;
  }

  /**
   * The rows since the last batch, which may be none.
   *
   * <p>What they were made of is used again when the next entry begins.
   */
  public ColumnarBatch take() {
    forgetTaken();
    fields.check();
    for (Column each : columns) {
      each.seal(rows);
    }
    batch.setNumRows(rows);
    isTaken = true;
    return batch;
  }

  private void forgetTaken() {
    if (!isTaken) {
      return;
    }
    isTaken = false;
    int kept = Math.min(capacity, KEPT_ROWS);
    for (Column each : columns) {
      each.clear(rows, kept);
    }
    fields.forget(0);
    capacity = kept;
    rows = 0;
  }

  private void grow(int capacity) {
    for (Column each : columns) {
      each.grow(capacity);
    }
    this.capacity = capacity;
  }
}
