package org.logstore.spark.log;

import java.util.Arrays;
import java.util.List;

/**
 * Gives the live entries of a node that lie in an interval ({@code logstore/codec/_node.pxi}).
 *
 * <p>Every offset, length and count is checked against the bytes of the node before it is used.
 * Entries are looked at in order, each once; behind the interval's end nothing is.
 */
final class NodeReader {
  private static final int DELETED = 1;
  private static final int SAME_FIELDS = 2;

  private final Listpack lp = new Listpack();
  private final MasterFields fields = new MasterFields();

  // The node.
  private Section range;
  private Ids wanted;
  private boolean isAllWanted;
  private long masterMs;
  private long masterSeq;
  private byte[] vectors = new byte[0];
  private int vectorAt;
  private int vectorBytes;
  private int segment;
  private long offset;
  private int width;
  private int first;

  // How far it was read.
  private int pos;
  private int ordinal;
  private long taken;
  private boolean beyond;
  private int interval; // of what is wanted

  /**
   * Takes a node.
   *
   * @param wanted the IDs of its stream that are wanted
   * @param items the list that the item, and its vector, are in
   * @param data the bytes that the listpack lies in, from one index to another
   */
  void open(Section range, Ids wanted, byte[] items, NodeItem item, byte[] data, int from, int to)
      throws Damage {
    this.range = range;
    this.wanted = wanted;
    isAllWanted = wanted.isAll();
    masterMs = item.ms;
    masterSeq = item.seq;
    vectors = items;
    vectorAt = item.vectorAt;
    vectorBytes = item.vectorBytes;
    segment = (int) Layout.segmentOf(item.position);
    offset = Layout.offsetOf(item.position);
    lp.open(data, from, to);
    lp.counter(lp.first()); // live entries
    lp.counter(lp.after()); // tombstones
    readFields(lp.after());
    rewind();
  }

  private void readFields(int widthAt) throws Damage {
    width = lp.counter(widthAt);
    int at = lp.after();
    for (int i = 0; i < width; i++) {
      at = lp.skip(at);
    }
    if (lp.integer(at) != 0) {
      throw Damage.ofNode("the node's master fields do not end with 0");
    }
    first = lp.after();
    fields.set(lp, widthAt, first, width);
  }

  /** Goes back to the node's first entry. */
  void rewind() {
    pos = first;
    ordinal = -1;
    taken = 0;
    beyond = false;
    interval = wanted.upFrom(masterMs, masterSeq);
  }

  /** How many entries were found. */
  long taken() {
    return taken;
  }

  /** Goes over all entries, and gives none of them. */
  void count() throws Damage {
    while (!isAtEnd()) {
      skipEntry();
    }
  }

  private boolean isAtEnd() {
    return pos >= lp.end() || beyond;
  }

  private void skipEntry() throws Damage {
    int flags = readFlags();
    long ms = masterMs + lp.integer(lp.after());
    long seq = masterSeq + lp.integer(lp.after());
    boolean same = (flags & SAME_FIELDS) != 0;
    int pairs = same ? width : lp.counter(lp.after());
    boolean isTaken = isTaken(flags, ms, seq);
    int at = lp.after();
    for (int i = same ? pairs : 2 * pairs; i > 0; i--) {
      at = lp.skip(at);
    }
    readTail(at, same, pairs);
    if (isTaken) {
      taken++;
    }
  }

  /**
   * Gives entries to a sink.
   *
   * @param pausing whether to stop where the sink is full
   * @return whether all were given
   */
  boolean give(EntrySink sink, boolean pausing) throws Damage {
    fields.resolve(sink);
    boolean wantsPairs = sink.wantsPairs();
    while (!isAtEnd()) {
      if (pausing && sink.isFull()) {
        return false;
      }
      int flags = readFlags();
      long ms = masterMs + lp.integer(lp.after());
      long seq = masterSeq + lp.integer(lp.after());
      boolean same = (flags & SAME_FIELDS) != 0;
      int pairs = same ? width : lp.counter(lp.after());
      boolean isTaken = isTaken(flags, ms, seq);
      int at = lp.after();
      if (isTaken) {
        sink.begin(ms, seq, segment, offset);
        if (!same) {
          at = giveOwn(sink, at, pairs, wantsPairs);
        } else if (wantsPairs) {
          at = givePairs(sink, at);
        } else {
          at = giveSame(sink, at);
        }
      } else {
        for (int i = same ? pairs : 2 * pairs; i > 0; i--) {
          at = lp.skip(at);
        }
      }
      readTail(at, same, pairs);
      if (isTaken) {
        sink.end();
        taken++;
      }
    }
    return true;
  }

  private int readFlags() throws Damage {
    ordinal++;
    return (int) lp.integer(pos);
  }

  private boolean isTaken(int flags, long ms, long seq) {
    if ((flags & DELETED) != 0) {
      return false;
    }
    int at = ordinal >> 3;
    if (at < vectorBytes && (vectors[vectorAt + at] >> (ordinal & 7) & 1) != 0) {
      return false;
    }
    Id end = range.end();
    Id start = range.start();
    beyond = Id.below(end.ms(), end.seq(), ms, seq);
    return !beyond
        && !Id.below(ms, seq, start.ms(), start.seq())
        && (isAllWanted || isWanted(ms, seq));
  }

  /** Whether an ID is wanted that is not below one that was asked before. */
  private boolean isWanted(long ms, long seq) {
    List<Ids.Interval> intervals = wanted.intervals();
    while (interval < intervals.size()) {
      Id end = intervals.get(interval).end();
      if (!Id.below(end.ms(), end.seq(), ms, seq)) {
        Id start = intervals.get(interval).start();
        return !Id.below(ms, seq, start.ms(), start.seq());
      }
      interval++;
    }
    beyond = true;
    return false;
  }

  private void readTail(int at, boolean same, int pairs) throws Damage {
    if (lp.integer(at) != (same ? pairs + 3L : 2L * pairs + 4)) {
      throw Damage.ofNode("an entry says a wrong number of elements");
    }
    pos = lp.after();
  }

  /** Gives the values of an entry that has the node's fields; where they end. */
  private int giveSame(EntrySink sink, int at) throws Damage {
    int[] numbers = fields.numbers();
    for (int i = 0; i < width; i++) {
      int number = numbers[i];
      if (number == EntrySink.NONE) {
        at = lp.skip(at);
      } else {
        lp.read(at);
        at = lp.after();
        put(sink, number);
      }
    }
    return at;
  }

  private int givePairs(EntrySink sink, int at) throws Damage {
    int[] numbers = fields.numbers();
    for (int i = 0; i < width; i++) {
      byte[] name = fields.name(i);
      lp.read(at);
      at = lp.after();
      sink.pair(name, 0, name.length);
      put(sink, numbers[i]);
    }
    return at;
  }

  /** Gives the values of an entry that has its own fields; where they end. */
  private int giveOwn(EntrySink sink, int at, int pairs, boolean wantsPairs) throws Damage {
    for (int i = 0; i < pairs; i++) {
      lp.read(at);
      byte[] data = lp.data();
      int from = lp.at();
      int size = lp.size();
      if (lp.isNumber()) {
        data = lp.bytes();
        from = 0;
        size = data.length;
      }
      int number = sink.field(data, from, size);
      if (number == EntrySink.NONE && !wantsPairs) {
        at = lp.skip(lp.after());
        continue;
      }
      lp.read(lp.after());
      at = lp.after();
      if (wantsPairs) {
        sink.pair(data, from, size);
      }
      put(sink, number);
    }
    return at;
  }

  private void put(EntrySink sink, int number) {
    if (lp.isNumber()) {
      sink.number(number, lp.number());
    } else {
      sink.text(number, lp.data(), lp.at(), lp.size());
    }
  }

  /**
   * The names of a node's fields, and the numbers that a sink has for them; kept while one node
   * after the other has the same.
   */
  private static final class MasterFields {
    private byte[] shape = new byte[0];
    private byte[][] names = new byte[0][];
    private int[] numbers = new int[0];
    private EntrySink of;

    /** Takes the names out of bytes of a listpack that were walked over before. */
    void set(Listpack lp, int from, int to, int width) throws Damage {
      if (Arrays.equals(shape, 0, shape.length, lp.data(), from, to)) {
        return;
      }
      shape = new byte[0];
      of = null;
      names = new byte[width][];
      lp.counter(from);
      for (int i = 0; i < width; i++) {
        lp.read(lp.after());
        names[i] = lp.bytes();
      }
      shape = Arrays.copyOfRange(lp.data(), from, to);
    }

    void resolve(EntrySink sink) {
      if (of == sink) {
        return;
      }
      numbers = new int[names.length];
      for (int i = 0; i < names.length; i++) {
        numbers[i] = sink.field(names[i], 0, names[i].length);
      }
      of = sink;
    }

    int[] numbers() {
      return numbers;
    }

    byte[] name(int at) {
      return names[at];
    }
  }
}
