package org.logstore.spark.columns;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The columns that every entry has: its stream, its ID, all of its pairs, and where it lies. */
final class StandardColumns {
  private final ColumnSpec.Kind[] kinds;
  private final Column[] columns;
  private final PairsColumn[] pairs;
  private final TextColumn[] streams;

  // The node of the entry.
  private int segment;
  private long offset; // 0: it is in no segment

  /** Of columns, those that are no fields. */
  StandardColumns(ColumnSpec[] specs, Column[] columns, String store) {
    List<ColumnSpec.Kind> kinds = new ArrayList<>();
    List<Column> found = new ArrayList<>();
    List<PairsColumn> pairs = new ArrayList<>();
    List<TextColumn> streams = new ArrayList<>();
    for (int i = 0; i < specs.length; i++) {
      switch (specs[i].kind()) {
        case FIELD, CORRUPT -> {
          continue;
        }
        case FIELDS, PAIRS -> pairs.add((PairsColumn) columns[i]);
        case STREAM -> streams.add((TextColumn) columns[i]);
        case STORE -> ((TextColumn) columns[i]).share(store.getBytes(StandardCharsets.UTF_8));
        default -> {}
      }
      kinds.add(specs[i].kind());
      found.add(columns[i]);
    }
    this.kinds = kinds.toArray(new ColumnSpec.Kind[0]);
    this.columns = found.toArray(new Column[0]);
    this.pairs = pairs.toArray(new PairsColumn[0]);
    this.streams = streams.toArray(new TextColumn[0]);
  }

  /** Whether a column shows pairs. */
  boolean wantsPairs() {
    return pairs.length > 0;
  }

  /** The stream of the entries that follow. */
  void stream(byte[] name) {
    for (TextColumn each : streams) {
      each.share(Arrays.copyOf(name, name.length));
    }
  }

  /** An entry begins; its node is in a segment at an offset, 0: in none. */
  void begin(int segment, long offset) {
    this.segment = segment;
    this.offset = offset;
    for (PairsColumn each : pairs) {
      each.begin();
    }
  }

  /** The name of the field whose value is put next. */
  void name(byte[] data, int offset, int length) {
    for (PairsColumn each : pairs) {
      each.name(data, offset, length);
    }
  }

  /** A value that is text. */
  void text(int row, byte[] data, int offset, int length) {
    for (PairsColumn each : pairs) {
      each.text(row, data, offset, length);
    }
  }

  /** A value that is a number. */
  void number(int row, long value) {
    for (PairsColumn each : pairs) {
      each.number(row, value);
    }
  }

  /** The entry is left out. */
  void drop() {
    for (PairsColumn each : pairs) {
      each.drop();
    }
  }

  /** The entry is whole, and is a row. */
  void end(int row, long ms, long seq) {
    for (int i = 0; i < kinds.length; i++) {
      Column column = columns[i];
      switch (kinds[i]) {
        case STREAM, STORE -> ((TextColumn) column).putShared(row);
        case ID -> ((TextColumn) column).id(row, ms, seq);
        case ID_KEY -> ((TextColumn) column).key(row, ms, seq);
        case MS -> unsigned(column, row, ms);
        case SEQ -> unsigned(column, row, seq);
        case TS -> timestamp((LongColumn) column, row, ms);
        case SEGMENT -> place((LongColumn) column, row, Integer.toUnsignedLong(segment));
        case OFFSET -> place((LongColumn) column, row, offset);
        default -> ((PairsColumn) column).end(row);
      }
    }
  }

  private void place(LongColumn column, int row, long value) {
    if (offset != 0) {
      column.put(row, value);
    }
  }

  private static void unsigned(Column column, int row, long value) {
    if (column instanceof DecimalColumn decimals) {
      decimals.putUnsigned(row, value);
    } else if (value >= 0) {
      ((LongColumn) column).put(row, value);
    }
  }

  private static void timestamp(LongColumn column, int row, long ms) {
    if (ms >= 0 && ms <= StandardValues.TIMESTAMP_MS_MAX) {
      column.put(row, ms * 1000);
    }
  }
}
