package org.logstore.spark.log;

import java.io.Closeable;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.zip.CRC32C;
import org.logstore.spark.LogstoreException;

/**
 * The blocks of a split, out of its snapshot file or out of itself ({@code
 * logstore.scan.snapshot_file}).
 *
 * <p>Nothing of a block is used before its CRC fits, which covers the file's head and the block's
 * offset. A length is checked against what is there before memory is taken.
 */
final class SnapshotBlocks implements Closeable {
  /** Where blocks come from. */
  private interface Source {
    /** Reads up to a size; less only at the end. */
    int read(byte[] into, int size, long offset);

    long sizeBytes();

    String name();

    void close();
  }

  private final Source source;
  private final byte[] head;
  private final long end;
  private long offset;

  private Section section;
  private byte[] body = new byte[0];
  private int itemsAt;

  private SnapshotBlocks(Source source, byte[] head, long offset, long sizeBytes) {
    this.source = source;
    this.head = head;
    this.offset = offset;
    this.end = offset + sizeBytes;
  }

  /** The blocks of a split; SnapshotExpiredError if its file is gone. */
  static SnapshotBlocks open(Split split) {
    if (split.blocks().length > 0) {
      byte[] head = new byte[Layout.SNAPSHOT_HEAD_BYTES - 4];
      System.arraycopy(Layout.SNAPSHOT_MAGIC, 0, head, 0, 8);
      Layout.putInt16(head, 8, Layout.FORMAT_VERSION);
      System.arraycopy(split.uuid(), 0, head, 14, 16);
      Source source = inline(split);
      return new SnapshotBlocks(source, head, split.offset(), split.sizeBytes());
    }
    Path path = PinFile.snapshotPath(split.home(), split.pinId());
    RegularFile file;
    try {
      file = RegularFile.open(path);
    } catch (NoSuchFileException gone) {
      throw new LogstoreException(
          "SnapshotExpiredError",
          "the snapshot " + path + " was given back or ran out: load again");
    }
    try {
      byte[] head = checkedHead(file, split);
      return new SnapshotBlocks(onDisk(file), head, split.offset(), split.sizeBytes());
    } catch (RuntimeException exc) {
      file.close();
      throw exc;
    }
  }

  private static Source inline(Split split) {
    byte[] blocks = split.blocks();
    long begin = split.offset();
    return new Source() {
      @Override
      public int read(byte[] into, int size, long offset) {
        long at = offset - begin;
        if (at < 0 || at >= blocks.length) {
          return 0;
        }
        int found = (int) Math.min(size, blocks.length - at);
        System.arraycopy(blocks, (int) at, into, 0, found);
        return found;
      }

      @Override
      public long sizeBytes() {
        return begin + blocks.length;
      }

      @Override
      public String name() {
        return "of this split";
      }

      @Override
      public void close() {}
    };
  }

  private static Source onDisk(RegularFile file) {
    return new Source() {
      @Override
      public int read(byte[] into, int size, long offset) {
        return readOf(file, into, size, offset);
      }

      @Override
      public long sizeBytes() {
        return file.sizeBytes();
      }

      @Override
      public String name() {
        return file.path().toString();
      }

      @Override
      public void close() {
        file.close();
      }
    };
  }

  private static int readOf(RegularFile file, byte[] into, int size, long offset) {
    try {
      return file.read(into, size, offset);
    } catch (Damage unreadable) {
      throw new LogstoreException(
          unreadable.kind(), ErrorText.at(unreadable.getMessage(), null, null, offset));
    }
  }

  /** The head of a file before its CRC, checked. */
  private static byte[] checkedHead(RegularFile file, Split split) {
    String name = file.path().toString();
    byte[] data = new byte[Layout.SNAPSHOT_HEAD_BYTES];
    if (readOf(file, data, data.length, 0) < data.length) {
      throw damaged(name, "its head is cut off", 0);
    }
    byte[] front = Arrays.copyOf(data, data.length - 4);
    CRC32C crc = new CRC32C();
    crc.update(front);
    boolean ours = Arrays.equals(data, 0, 8, Layout.SNAPSHOT_MAGIC, 0, 8);
    if (!ours || (int) crc.getValue() != Layout.int32(data, front.length)) {
      throw damaged(name, "its head is not what was written", 0);
    }
    checkVersion(Layout.int16(data, 8) & 0xFFFF, name);
    byte[] pin = HexFormat.of().parseHex(split.pinId());
    if (!Arrays.equals(front, 14, 30, split.uuid(), 0, split.uuid().length)
        || !Arrays.equals(front, 30, 46, pin, 0, pin.length)) {
      throw damaged(name, "it belongs to another store or pin", 0);
    }
    return front;
  }

  private static void checkVersion(int version, String name) {
    if (version > Layout.FORMAT_VERSION) {
      throw new LogstoreException(
          "FormatVersionError",
          name
              + " is of format "
              + version
              + ", this logstore reads up to "
              + Layout.FORMAT_VERSION
              + ": upgrade logstore to read it");
    }
    if (!Layout.isReadable(version)) {
      throw new LogstoreException(
          "CorruptionError", name + " says that it is of format " + version + ", which never was");
    }
  }

  private static LogstoreException damaged(String name, String why, long offset) {
    String text =
        "the snapshot "
            + name
            + " is damaged ("
            + why
            + "): load again, a new one is made from the store";
    return new LogstoreException("CorruptionError", ErrorText.at(text, null, null, offset));
  }

  /** Goes to the next block; false if there is none. */
  boolean next() {
    if (offset >= end) {
      return false;
    }
    byte[] block = new byte[Layout.BLOCK_HEAD_BYTES];
    if (source.read(block, block.length, offset) < block.length || offset + block.length > end) {
      throw damaged(source.name(), "a block is cut off", offset);
    }
    long size = Layout.unsigned32(block, 4);
    long bodyAt = offset + block.length;
    if (bodyAt + size > end) {
      throw damaged(source.name(), "a block is longer than what is there", offset);
    }
    if (size > Layout.ARRAY_MAX_BYTES) {
      throw TooLarge.toRead("a block of the snapshot", size);
    }
    boolean whole = bodyAt + size <= source.sizeBytes();
    body = new byte[whole ? (int) size : 0];
    if (!whole
        || source.read(body, body.length, bodyAt) < size
        || crcOf(block) != Layout.int32(block, 0)) {
      throw damaged(source.name(), "a block is not what was written", offset);
    }
    itemsAt = (int) Math.min(Layout.unsigned32(block, 8), size);
    section =
        new Section(
            Arrays.copyOf(body, itemsAt),
            Layout.int64(block, 16),
            new Id(Layout.int64(block, 24), Layout.int64(block, 32)),
            new Id(Layout.int64(block, 40), Layout.int64(block, 48)));
    offset = bodyAt + size;
    return true;
  }

  private int crcOf(byte[] block) {
    byte[] place = new byte[8];
    Layout.putInt64(place, 0, offset);
    CRC32C crc = new CRC32C();
    crc.update(head);
    crc.update(place);
    crc.update(block, 4, block.length - 4);
    crc.update(body);
    return (int) crc.getValue();
  }

  /** Where the next block begins. */
  long offset() {
    return offset;
  }

  /** Stream and interval of the block. */
  Section section() {
    return section;
  }

  /** The bytes that the block's items lie in, from {@link #itemsAt} on. */
  byte[] body() {
    return body;
  }

  int itemsAt() {
    return itemsAt;
  }

  @Override
  public void close() {
    source.close();
  }
}
