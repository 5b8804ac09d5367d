package org.logstore.spark.log;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.zip.CRC32C;
import org.logstore.spark.LogstoreException;

/**
 * The pin of a plan: it keeps from compaction what the plan names ({@code logstore.log.pinfile}).
 *
 * <p>A pin appears whole and durable or not at all, also when two processes renew it at once. One
 * that cannot be read, or is past its end, counts as gone.
 */
final class PinFile {
  private static final long MAX_BYTES = 64 << 20;
  private static final SecureRandom RANDOM = new SecureRandom();

  private final Path pins;
  private final String home;
  private final String pinId;

  PinFile(String home, String pinId) {
    this.home = home;
    this.pins = Path.of(home, "pins");
    this.pinId = pinId;
  }

  /** The snapshot file that a pin keeps. */
  static Path snapshotPath(String home, String pinId) {
    return Path.of(home, "pins", pinId + ".snap");
  }

  /** The pin, if it still holds; SnapshotExpiredError if not. */
  PinBody check(long nowMs) {
    PinBody found = read();
    if (found == null && !Files.exists(pins)) {
      throw new LogstoreException(
          "NotAStoreError",
          home
              + " is not the store's directory on the host "
              + hostName()
              + ": executors need it under the path that the driver has, as by a mount");
    }
    if (found == null || found.expiresMs() <= nowMs) {
      throw new LogstoreException(
          "SnapshotExpiredError",
          "the pin "
              + pinId
              + " of this snapshot "
              + (found == null ? "was given back" : "ran out")
              + ", so that compaction may have removed what it names. It is kept while tasks read,"
              + " and ends when nothing reads for an hour, or with the driver: load again, or"
              + " create the temporary view again; a table always shows the present");
    }
    return found;
  }

  /** The same of a plan's pin: one that an erasure took may have been put back by a reader. */
  void checkPlanned(long nowMs) {
    check(nowMs);
    if (!Files.exists(snapshotPath(home, pinId))) {
      throw new LogstoreException(
          "SnapshotExpiredError",
          "the snapshot of the pin " + pinId + " was taken away: load again");
    }
  }

  /**
   * Checks the pin, and lets it live its whole time again once half of that is over.
   *
   * <p>A process that may not write there reads on under the time that is left.
   *
   * @return the time of the pin in milliseconds
   */
  long renew(long nowMs) {
    PinBody found = check(nowMs);
    if (found.expiresMs() - nowMs <= found.ttlMs() / 2) {
      write(found.withEnd(nowMs + found.ttlMs()));
    }
    return found.ttlMs();
  }

  private PinBody read() {
    byte[] data;
    try (RegularFile file = RegularFile.open(pins.resolve(pinId))) {
      long size = file.sizeBytes();
      if (size > MAX_BYTES) {
        throw new LogstoreException(
            "FileSystemError", file.path() + " is larger than it can be: " + size + " bytes");
      }
      data = new byte[(int) size];
      data = Arrays.copyOf(data, file.read(data, data.length, 0));
    } catch (NoSuchFileException gone) {
      return null;
    } catch (Damage unreadable) {
      throw new LogstoreException(unreadable.kind(), unreadable.getMessage());
    }
    if (data.length < Layout.PIN_HEAD_BYTES
        || !Arrays.equals(data, 0, 8, Layout.PIN_MAGIC, 0, 8)
        || !Layout.isReadable(Layout.int16(data, 8) & 0xFFFF)) {
      return null;
    }
    byte[] body = Arrays.copyOfRange(data, Layout.PIN_HEAD_BYTES, data.length);
    PinBody found = crcOf(body) == Layout.int32(data, 10) ? PinBody.of(body) : null;
    return found != null && found.id().equals(pinId) ? found : null;
  }

  private static int crcOf(byte[] body) {
    CRC32C crc = new CRC32C();
    crc.update(body);
    return (int) crc.getValue();
  }

  /** Replaces the pin durably: temporary name of its own, sync, rename, sync of the directory. */
  private void write(byte[] body) {
    byte[] head = new byte[Layout.PIN_HEAD_BYTES];
    System.arraycopy(Layout.PIN_MAGIC, 0, head, 0, 8);
    Layout.putInt16(head, 8, Layout.FORMAT_VERSION);
    Layout.putInt32(head, 10, crcOf(body));
    byte[] name = new byte[16];
    RANDOM.nextBytes(name);
    Path temporary = pins.resolve(pinId + "." + HexFormat.of().formatHex(name) + ".tmp");
    try {
      try (FileChannel file =
          FileChannel.open(temporary, StandardOpenOption.WRITE, StandardOpenOption.CREATE_NEW)) {
        writeAll(file, ByteBuffer.wrap(head));
        writeAll(file, ByteBuffer.wrap(body));
        file.force(true);
      }
    } catch (IOException mayNot) {
      return;
    }
    try {
      Files.move(temporary, pins.resolve(pinId), StandardCopyOption.ATOMIC_MOVE);
    } catch (NoSuchFileException erased) { // erasure removes whatever it finds among the pins
      throw new LogstoreException(
          "SnapshotExpiredError",
          "the pin " + pinId + " was taken away by an erasure while it was written: load again");
    } catch (IOException mayNot) {
      return;
    }
    try (FileChannel folder =
        FileChannel.open(pins, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
      folder.force(true);
    } catch (IOException notDurable) {
      // The pin before is as good until its end.
    }
  }

  private static void writeAll(FileChannel file, ByteBuffer data) throws IOException {
    while (data.hasRemaining()) {
      file.write(data);
    }
  }

  private static String hostName() {
    try {
      return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException unknown) {
      String found = System.getenv("HOSTNAME");
      return found == null ? "of this executor" : found;
    }
  }
}
