package org.logstore.spark.columns;

import java.util.Arrays;
import java.util.List;
import org.logstore.spark.log.EntrySink;

/** Finds the number of a field by its bytes. */
final class FieldNames {
  private final byte[][] names;
  private final int[] table; // numbers by the hash of the name; NONE where there is none

  FieldNames(List<byte[]> names) {
    this.names = names.toArray(new byte[0][]);
    table = new int[Integer.highestOneBit(Math.max(1, this.names.length)) * 4];
    Arrays.fill(table, EntrySink.NONE);
    for (int number = 0; number < this.names.length; number++) {
      byte[] name = this.names[number];
      int at = place(name, 0, name.length);
      while (table[at] != EntrySink.NONE) {
        at = at + 1 & table.length - 1;
      }
      table[at] = number;
    }
  }

  private int place(byte[] data, int offset, int length) {
    int hash = length;
    for (int i = 0; i < Math.min(length, 16); i++) {
      hash = 31 * hash + data[offset + i];
    }
    return hash & table.length - 1;
  }

  /** The number of a name; NONE: it is none of these. */
  int find(byte[] data, int offset, int length) {
    for (int at = place(data, offset, length); ; at = at + 1 & table.length - 1) {
      int number = table[at];
      if (number == EntrySink.NONE) {
        return number;
      }
      byte[] name = names[number];
      if (name.length == length && Arrays.equals(name, 0, length, data, offset, offset + length)) {
        return number;
      }
    }
  }
}
