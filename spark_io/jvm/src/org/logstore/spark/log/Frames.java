package org.logstore.spark.log;

import java.util.zip.CRC32C;

/**
 * Frames of nodes, proven to be those that their locators mean.
 *
 * <p>Nothing of a frame is used before its checksum, bound to store and place, fits, and it names
 * the stream and the master ID.
 */
final class Frames {
  private final CRC32C crc = new CRC32C();
  private final byte[] seed = new byte[24]; // the store's UUID, then a position

  Frames(byte[] uuid) {
    System.arraycopy(uuid, 0, seed, 0, 16);
  }

  private boolean isWhole(byte[] data, int at, long position, int bytes) {
    Layout.putInt64(seed, 16, position);
    crc.reset();
    crc.update(seed);
    crc.update(data, at + 4, bytes - 4);
    return (int) crc.getValue() == Layout.int32(data, at);
  }

  private static boolean isNode(byte[] data, int at) {
    int kind = data[at + Layout.FRAME_KIND_AT];
    return kind == Layout.KIND_NODE || kind == Layout.KIND_OPEN;
  }

  private static boolean names(byte[] data, int at, NodeItem item, long stream) {
    int body = at + Layout.FRAME_HEAD_BYTES;
    return Layout.int64(data, body) == stream
        && Layout.int64(data, body + 8) == item.ms
        && Layout.int64(data, body + 16) == item.seq;
  }

  /** Whether the frame at an index, all of which is there, is the one that is meant, and sound. */
  boolean isMeant(byte[] data, int at, NodeItem item, long stream) {
    return item.sizeBytes >= Layout.NODE_HEAD_BYTES
        && Layout.unsigned32(data, at + 4) == item.sizeBytes
        && Layout.int16(data, at + Layout.FRAME_MARK_AT) == Layout.FRAME_MARK
        && isNode(data, at)
        && names(data, at, item, stream)
        && isWhole(data, at, item.position, (int) item.frameBytes());
  }

  /** The same of bytes that a frame should begin, of which there may be less; Damage says why. */
  void check(byte[] data, int size, NodeItem item, long stream) throws Damage {
    if (size < Layout.FRAME_HEAD_BYTES) {
      throw invalid("the header is cut off");
    }
    if (Layout.int16(data, Layout.FRAME_MARK_AT) != Layout.FRAME_MARK
        || data[Layout.FRAME_KIND_AT] == 0) {
      throw invalid("no frame mark");
    }
    long payload = Layout.unsigned32(data, 4);
    if (Layout.FRAME_HEAD_BYTES + payload > size) {
      throw invalid("it is cut off");
    }
    if (!isWhole(data, 0, item.position, Layout.FRAME_HEAD_BYTES + (int) payload)) {
      throw invalid("the checksum does not fit");
    }
    if (payload != item.sizeBytes) {
      throw unmeant("a frame has not the length that its locator says");
    }
    if (!isNode(data, 0) || payload < Layout.NODE_HEAD_BYTES) {
      throw unmeant("a locator points at a frame that is no node");
    }
    if (!names(data, 0, item, stream)) {
      int body = Layout.FRAME_HEAD_BYTES;
      Id found = new Id(Layout.int64(data, body + 8), Layout.int64(data, body + 16));
      throw unmeant("a locator of node " + new Id(item.ms, item.seq) + " points at node " + found);
    }
  }

  private static Damage invalid(String why) {
    return Damage.ofFrame("no valid frame: " + why);
  }

  private static Damage unmeant(String why) {
    return Damage.ofFrame(why + ": run 'logstore check'");
  }
}
