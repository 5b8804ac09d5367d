package org.logstore.spark.log;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Set;
import org.logstore.spark.LogstoreException;

/**
 * A file of a store, open for positional reads.
 *
 * <p>It is a regular file, and no symbolic link: a store makes none. Whatever the system says is an
 * error of ours, but for a file that is not there.
 */
final class RegularFile implements Closeable {
  /** A channel copies what it reads by way of a buffer of this size, which a thread keeps. */
  private static final int PIECE_BYTES = 256 << 10;

  /** What disks, and file systems with checksums, say of bytes that they cannot give back. */
  private static final Set<String> UNREADABLE =
      Set.of(
          "Input/output error",
          "Bad message",
          "Structure needs cleaning",
          "No data available",
          "Invalid or incomplete multibyte or wide character",
          "Remote I/O error");

  private final Path path;
  private final FileChannel channel;

  private RegularFile(Path path, FileChannel channel) {
    this.path = path;
    this.channel = channel;
  }

  /** Opens a file; NoSuchFileException if it is not there. */
  static RegularFile open(Path path) throws NoSuchFileException {
    try {
      BasicFileAttributes kind =
          Files.readAttributes(path, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (kind.isSymbolicLink()) {
        throw refused(
            "opening "
                + path
                + " failed: it is a symbolic link, which logstore did not make and does not"
                + " follow");
      }
      if (kind.isOther()) { // opening a pipe would wait for its other end
        throw refused(path + " is no regular file, which logstore did not make");
      }
      return new RegularFile(
          path, FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS));
    } catch (NoSuchFileException exc) {
      throw exc;
    } catch (IOException exc) {
      throw typed(exc, path, "opening");
    }
  }

  private static LogstoreException refused(String why) {
    return new LogstoreException(
        "FileSystemError", why + ": move it away, or put the file itself in its place");
  }

  /** The error of ours for one of the system. */
  static LogstoreException typed(IOException exc, Path path, String doing) {
    String what = reason(exc);
    String text =
        doing
            + " "
            + path
            + " failed: "
            + what
            + "; look into the system's log for errors of the disk, and run 'logstore check' when"
            + " it is sound again";
    if (exc instanceof AccessDeniedException || what.equals("Operation not permitted")) {
      text =
          "no permission while "
              + doing
              + " "
              + path
              + ": Permission denied; fix the permissions, or open with readonly=True";
    } else if (what.equals("Too many open files")) {
      text = "too many open files while " + doing + " " + path + ": raise the limit with ulimit -n";
    } else if (what.equals("Not a directory")) {
      text = doing + " " + path + " failed: " + what + "; give a directory, not a file";
    }
    return new LogstoreException("FileSystemError", text, exc);
  }

  private static String reason(IOException exc) {
    String found = exc instanceof FileSystemException of ? of.getReason() : exc.getMessage();
    return found == null ? exc.toString() : found;
  }

  Path path() {
    return path;
  }

  long sizeBytes() {
    try {
      return channel.size();
    } catch (IOException exc) {
      throw typed(exc, path, "looking at");
    }
  }

  /** Reads up to a size into the begin of an array; less only at the end of the file. */
  int read(byte[] into, int size, long offset) throws Damage {
    return read(into, size, offset, false);
  }

  /** The same, and less also where the disk does not give bytes back. */
  int readable(byte[] into, int size, long offset) {
    try {
      return read(into, size, offset, true);
    } catch (Damage impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  private int read(byte[] into, int size, long offset, boolean upToDamage) throws Damage {
    int done = 0;
    try {
      while (done < size) {
        ByteBuffer piece = ByteBuffer.wrap(into, done, Math.min(size - done, PIECE_BYTES));
        int found = channel.read(piece, offset + done);
        if (found <= 0) {
          break;
        }
        done += found;
      }
    } catch (IOException exc) {
      if (!UNREADABLE.contains(reason(exc))) {
        throw typed(exc, path, "reading");
      }
      if (!upToDamage) {
        throw unreadable(exc, offset + done);
      }
    }
    return done;
  }

  private Damage unreadable(IOException exc, long offset) {
    return new Damage(
        "UnreadableError",
        "the disk does not give back "
            + path
            + " from byte "
            + offset
            + " on: "
            + reason(exc)
            + "; look into the system's log, and copy what is left from a failing disk; of a"
            + " store, 'logstore check' says what is affected, 'logstore recover --salvage' takes"
            + " out the rest");
  }

  @Override
  public void close() {
    try {
      channel.close();
    } catch (IOException said) {
      // Of a file that was only read, it says nothing that a read has not said before.
    }
  }
}
