package org.logstore.spark.log;

import java.io.Closeable;

/**
 * Finds the checked listpacks of nodes. Bytes of the log are read in stretches that hold many
 * nodes, and are decoded where they are.
 *
 * <p>A node whose frame in a stretch is doubtful is read alone, so that its error says what is
 * wrong. Memory is taken only for what a file has.
 */
final class NodeBytes implements Closeable {
  /** A larger array is given back as soon as nodes are small again. */
  private static final int KEPT_BYTES = 1 << 20;

  private static final byte[] NONE = {};

  private final SegmentBytes segments;
  private final Frames frames;
  private byte[] stretch = NONE;
  private int stretchBytes;
  private long stretchPosition;
  private long read;

  private byte[] data = NONE;
  private int from;
  private int to;

  NodeBytes(SegmentBytes segments, byte[] uuid) {
    this.segments = segments;
    this.frames = new Frames(uuid);
  }

  /** The bytes that the listpack lies in, which are kept until the next is found. */
  byte[] data() {
    return data;
  }

  int from() {
    return from;
  }

  int to() {
    return to;
  }

  /** How many bytes were read. */
  long read() {
    return read;
  }

  /**
   * Finds the listpack of an item, which is at an index of a list.
   *
   * @param number the item's in its split
   * @param choice which items behind it are read, too
   */
  void find(
      NodeItem item, Section section, byte[] items, int at, int number, NodeItem.Choice choice)
      throws Damage {
    if (item.position == 0) {
      set(items, item.listpackAt, item.after);
      return;
    }
    if (!isInStretch(item)) {
      long wanted = NodeItem.stretchBytes(items, at, number, choice);
      fetch(item.position, Math.max(wanted, item.frameBytes()), true);
    }
    int begin = (int) (item.position - stretchPosition);
    if (!isInStretch(item) || !frames.isMeant(stretch, begin, item, section.stream())) {
      begin = 0;
      fetch(item.position, item.frameBytes(), false);
      frames.check(stretch, stretchBytes, item, section.stream());
    }
    int body = begin + Layout.FRAME_HEAD_BYTES;
    set(stretch, body + Layout.NODE_HEAD_BYTES, body + (int) item.sizeBytes);
  }

  private void set(byte[] data, int from, int to) {
    this.data = data;
    this.from = from;
    this.to = to;
  }

  private boolean isInStretch(NodeItem item) {
    long begin = item.position - stretchPosition;
    return begin >= 0 && begin <= stretchBytes - item.frameBytes();
  }

  /** Reads bytes of the log from a position on, as far as there are. */
  private void fetch(long position, long wanted, boolean upToDamage) throws Damage {
    stretchBytes = 0;
    data = NONE;
    long room = segments.sizeBytes(Layout.segmentOf(position)) - Layout.offsetOf(position);
    long size = Math.max(0, Math.min(wanted, room));
    if (size > Layout.ARRAY_MAX_BYTES) {
      throw TooLarge.toRead("a node", size);
    }
    if (stretch.length < size || stretch.length > KEPT_BYTES && size <= KEPT_BYTES) {
      stretch = NONE; // before the other is there
      stretch = new byte[(int) Math.max(size, NodeItem.READ_BYTES)];
    }
    stretchPosition = position;
    stretchBytes = segments.read(stretch, (int) size, position, upToDamage);
    read += stretchBytes;
  }

  @Override
  public void close() {
    segments.close();
  }
}
