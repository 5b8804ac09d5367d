package org.logstore.spark.columns;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.logstore.spark.LogstoreException;
import org.logstore.spark.Repr;

/**
 * The columns that are fields of the entries, and what in them is malformed.
 *
 * <p>Of equal fields of an entry the last one counts, also if it alone is malformed, or not.
 */
final class FieldColumns {
  private static final int SHOWN_CHARACTERS = 100;
  private static final int NO_ROW = Integer.MAX_VALUE;

  private final Column[] columns;
  private final List<String> names = new ArrayList<>();
  private final FieldNames fields;
  private final int[][] readers; // the columns of each field
  private final boolean strict;

  // If it is strict, by column: the text that was malformed last, the first row with such a text,
  // and the text of that row.
  private final byte[][] malformed;
  private final int[] failedRows;
  private final byte[][] failures;

  /** Of columns, those that are fields. Strict: what is malformed is an error. */
  FieldColumns(ColumnSpec[] specs, Column[] columns, boolean strict) {
    List<byte[]> found = new ArrayList<>();
    List<Column> read = new ArrayList<>();
    for (int i = 0; i < specs.length; i++) {
      if (specs[i].kind() == ColumnSpec.Kind.FIELD) {
        found.add(specs[i].field());
        names.add(specs[i].name());
        read.add(columns[i]);
      }
    }
    this.columns = read.toArray(new Column[0]);
    List<byte[]> distinct = new ArrayList<>();
    for (byte[] field : found) {
      if (distinct.stream().noneMatch(each -> Arrays.equals(each, field))) {
        distinct.add(field);
      }
    }
    fields = new FieldNames(distinct);
    readers = new int[distinct.size()][];
    for (int number = 0; number < readers.length; number++) {
      byte[] field = distinct.get(number);
      readers[number] =
          IntStream.range(0, found.size())
              .filter(i -> Arrays.equals(found.get(i), field))
              .toArray();
    }
    this.strict = strict;
    malformed = new byte[found.size()][];
    failedRows = new int[found.size()];
    failures = new byte[found.size()][];
    forget(0);
  }

  /** The number of a field; NONE if no column reads it. */
  int find(byte[] data, int offset, int length) {
    return fields.find(data, offset, length);
  }

  /** Puts a text; false: it is not of the type of one of its columns. */
  boolean text(int field, int row, byte[] data, int offset, int length) {
    boolean all = true;
    for (int column : readers[field]) {
      if (!columns[column].text(row, data, offset, length)) {
        all = false;
        if (strict) {
          malformed[column] = Arrays.copyOfRange(data, offset, offset + length);
        }
      }
    }
    return all;
  }

  /** The same of the digits of a number. */
  boolean number(int field, int row, long value) {
    boolean all = true;
    for (int column : readers[field]) {
      if (!columns[column].number(row, value)) {
        all = false;
        if (strict) {
          malformed[column] = Digits.of(value);
        }
      }
    }
    return all;
  }

  /** Whether the last value of a field in a row is not of its type. */
  boolean isMalformed(int row) {
    boolean found = false;
    for (int i = 0; i < malformed.length; i++) {
      if (columns[i].states[row] == Column.MALFORMED) {
        found = true;
        if (strict && failedRows[i] == NO_ROW) {
          failedRows[i] = row;
          failures[i] = malformed[i];
        }
      }
    }
    return found;
  }

  /** Forgets what is malformed from a row on. */
  void forget(int row) {
    for (int i = 0; i < failedRows.length; i++) {
      if (failedRows[i] >= row) {
        failedRows[i] = NO_ROW;
        failures[i] = null;
      }
    }
  }

  /** Throws the error of the first column in which something is malformed, if it is strict. */
  void check() {
    for (int i = 0; i < failedRows.length; i++) {
      if (failedRows[i] != NO_ROW) {
        throw new LogstoreException(
            "UsageError",
            "a value of field "
                + Repr.of(names.get(i))
                + " is no "
                + Columns.shown(columns[i].dataType())
                + ": "
                + Repr.of(beginning(failures[i]))
                + "; read the column as string, or with mode=PERMISSIVE, which makes it null");
      }
    }
  }

  private static String beginning(byte[] text) {
    byte[] valid = Utf8.isValid(text, 0, text.length) ? text : Utf8.replaced(text, 0, text.length);
    String found = new String(valid, StandardCharsets.UTF_8);
    int count = found.codePointCount(0, found.length());
    return count <= SHOWN_CHARACTERS
        ? found
        : found.substring(0, found.offsetByCodePoints(0, SHOWN_CHARACTERS));
  }
}
