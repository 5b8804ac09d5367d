package org.logstore.spark.log;

/**
 * An item of a list of nodes ({@code logstore.codec.node_list.Item}), read in place.
 *
 * <p>Of an item that is whole all places lie in the list.
 */
final class NodeItem {
  /** Between nodes: what is between them is read, too. */
  private static final int GAP_MAX_BYTES = 16 << 10;

  /** What is read of the log at once stays in the cache of a core until it is decoded. */
  static final int READ_BYTES = 256 << 10;

  /** Of the frame; 0: the listpack is in the list. */
  long position;

  /** Of the frame's payload, or of the listpack in the list. */
  long sizeBytes;

  /** How many live entries it has. */
  long live;

  long ms;
  long seq;
  long lastMs;
  long lastSeq;
  int vectorAt;
  int vectorBytes;
  int listpackAt;

  /** Where the next item begins. */
  int after;

  /** Reads the item at an index; false if it is cut off. */
  boolean read(byte[] items, int at, int end) {
    if (end - at < Layout.ITEM_BYTES) {
      return false;
    }
    position = Layout.int64(items, at);
    sizeBytes = Layout.unsigned32(items, at + 8);
    live = Layout.unsigned32(items, at + 12);
    ms = Layout.int64(items, at + 16);
    seq = Layout.int64(items, at + 24);
    lastMs = Layout.int64(items, at + 32);
    lastSeq = Layout.int64(items, at + 40);
    vectorAt = at + Layout.ITEM_BYTES;
    long listpack = vectorAt + Layout.unsigned32(items, at + 48);
    long next = position == 0 ? listpack + sizeBytes : listpack;
    if (next > end) {
      return false;
    }
    listpackAt = (int) listpack;
    vectorBytes = listpackAt - vectorAt;
    after = (int) next;
    return true;
  }

  /** Bytes of the log that hold its frame. */
  long frameBytes() {
    return Layout.FRAME_HEAD_BYTES + sizeBytes;
  }

  /** Whether no entry of it is outside of what is wanted. */
  boolean isInside(Section section, Ids wanted) {
    Id start = section.start();
    Id end = section.end();
    return !Id.below(ms, seq, start.ms(), start.seq())
        && !Id.below(end.ms(), end.seq(), lastMs, lastSeq)
        && wanted.covers(first(), last());
  }

  /** Whether an entry of it may be wanted. */
  boolean meets(Ids wanted) {
    return wanted.meets(first(), last());
  }

  /** No entry of it has a smaller ID. */
  Id first() {
    return new Id(ms, seq);
  }

  /** No entry of it has a larger ID. */
  Id last() {
    return new Id(lastMs, lastSeq);
  }

  /** Says of nodes whether they are read. */
  interface Choice {
    /** Whether an item is read, of which the number in its split is given. */
    boolean reads(NodeItem item, int number);
  }

  /**
   * How much of the log to read for a list of nodes from an index on.
   *
   * @param number of the first node, which is read
   * @param choice which of the others are
   * @return bytes from the frame of the first node on, which hold it and those behind it that are
   *     read, while each begins shortly behind the one before, and it all (but for the first) is
   *     not too much
   */
  static long stretchBytes(byte[] items, int at, int number, Choice choice) {
    NodeItem item = new NodeItem();
    long begin = 0;
    long upto = 0;
    for (; item.read(items, at, items.length); at = item.after) {
      if (item.position == 0 || begin != 0 && !choice.reads(item, number)) {
        number++;
        continue;
      }
      number++;
      if (begin == 0) {
        begin = item.position;
      } else {
        long gap = item.position - upto;
        long size = item.position + item.frameBytes() - begin;
        if (gap < 0 || gap > GAP_MAX_BYTES || size > READ_BYTES) {
          break;
        }
      }
      upto = item.position + item.frameBytes();
    }
    return upto - begin;
  }
}
