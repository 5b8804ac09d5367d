package org.logstore.spark.columns;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;

/**
 * Whole entries: a map, or an array of all pairs.
 *
 * <p>In a map names are the same if their text is; of equal ones the first gives the place and the
 * last the value. A name that stands where the entry before has the same one shares its bytes.
 */
final class PairsColumn extends Column {
  private static final int FEW = 16; // names that are compared one by one

  private final boolean isMap;
  private final TextColumn names;
  private final TextColumn values;
  private final ColumnVector pair;
  private int[] firsts = new int[0];
  private int[] counts = new int[0];
  private int pairs; // of all rows, and of the entry that is being put
  private int room; // of pairs
  private int first; // pair of the entry

  // The entry before: its first pair, and how many it has.
  private int beforeFirst;
  private int beforeCount;
  private boolean same; // the entry begins as the one before, whose names differ in a map

  PairsColumn(DataType type) {
    super(type);
    isMap = type instanceof MapType;
    DataType nameType;
    DataType valueType;
    if (type instanceof MapType map) {
      nameType = map.keyType();
      valueType = map.valueType();
    } else {
      StructType struct = (StructType) ((ArrayType) type).elementType();
      nameType = struct.apply(0).dataType();
      valueType = struct.apply(1).dataType();
    }
    names = new TextColumn(nameType);
    values = new TextColumn(valueType);
    pair = isMap ? this : new Pair(((ArrayType) type).elementType());
  }

  /** An entry begins. */
  void begin() {
    first = pairs;
    same = true;
    names.mark();
    values.mark();
  }

  /** The name of the field whose value is put next. */
  void name(byte[] data, int offset, int length) {
    if (pairs == room) {
      room = Math.max(64, 2 * room);
      names.grow(room);
      values.grow(room);
    }
    int before = beforeFirst + pairs - first;
    if (pairs - first < beforeCount && names.equals(before, data, offset, length)) {
      names.copy(pairs, before);
    } else {
      names.text(pairs, data, offset, length);
      same = false;
    }
  }

  @Override
  boolean text(int row, byte[] data, int offset, int length) {
    return values.text(pairs++, data, offset, length);
  }

  @Override
  boolean number(int row, long value) {
    return values.number(pairs++, value);
  }

  /** The entry is whole: it is the row. */
  void end(int row) {
    int count = pairs - first;
    if (isMap && !same && count > 1) {
      count = distinct(count);
    }
    beforeFirst = first;
    beforeCount = count;
    firsts[row] = first;
    counts[row] = count;
    states[row] = VALUE;
  }

  /** The entry is left out. */
  void drop() {
    for (int at = pairs - 1; at >= first; at--) {
      names.backToMark(at);
      values.backToMark(at);
    }
    pairs = first;
    beforeCount = 0;
  }

  /** Leaves one pair of each name; how many there are then. */
  private int distinct(int count) {
    return count <= FEW && !repeats() ? count : merge();
  }

  private boolean repeats() {
    for (int i = first + 1; i < pairs; i++) {
      for (int j = first; j < i; j++) {
        if (names.equals(i, j)) {
          return true;
        }
      }
    }
    return false;
  }

  private int merge() {
    Map<ByteBuffer, Integer> places = new HashMap<>();
    int to = first;
    for (int i = first; i < pairs; i++) {
      Integer place = places.putIfAbsent(ByteBuffer.wrap(names.copyOf(i)), to);
      if (place == null) {
        names.copy(to, i);
        place = to++;
      }
      values.copy(place, i);
    }
    names.takeBack(to, pairs);
    values.takeBack(to, pairs);
    pairs = to;
    return to - first;
  }

  @Override
  void grow(int capacity) {
    super.grow(capacity);
    firsts = Arrays.copyOf(firsts, capacity);
    counts = Arrays.copyOf(counts, capacity);
  }

  @Override
  void takeBack(int from, int upto) {
    super.takeBack(from, upto);
    int kept = from == 0 ? 0 : firsts[from - 1] + counts[from - 1];
    int end = Math.min(pairs + 1, room); // a name may be there without its value
    names.takeBack(kept, end);
    values.takeBack(kept, end);
    pairs = kept;
    beforeCount = 0;
  }

  @Override
  void clear(int used, int capacity) {
    super.clear(used, capacity);
    if (firsts.length > capacity) {
      firsts = new int[capacity];
      counts = new int[capacity];
    }
    int kept = Math.min(room, 16 * Math.max(capacity, 64));
    names.clear(Math.min(pairs, room), kept);
    values.clear(Math.min(pairs, room), kept);
    room = kept;
    pairs = 0;
    beforeCount = 0;
  }

  @Override
  long bytes() {
    return names.bytes() + values.bytes() + 16L * pairs;
  }

  @Override
  public ColumnarArray getArray(int row) {
    return isNullAt(row) ? null : new ColumnarArray(pair, firsts[row], counts[row]);
  }

  @Override
  public ColumnarMap getMap(int row) {
    return isNullAt(row) ? null : new ColumnarMap(names, values, firsts[row], counts[row]);
  }

  /** The pairs as structs. */
  private final class Pair extends Column {
    Pair(DataType type) {
      super(type);
    }

    @Override
    boolean text(int row, byte[] data, int offset, int length) {
      return false;
    }

    @Override
    boolean number(int row, long value) {
      return false;
    }

    @Override
    public boolean isNullAt(int row) {
      return false;
    }

    @Override
    public int numNulls() {
      return 0;
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return ordinal == 0 ? names : values;
    }
  }
}
