package org.logstore.spark.log;

import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import java.util.function.BooleanSupplier;

/** The segments of a store in a directory, of which a few are open. */
final class LocalSegments implements SegmentBytes {
  private final Path log;
  private final BooleanSupplier pinHolds;
  private final Set<Long> gone = new HashSet<>(); // though the pin holds them

  private final OpenFiles<RegularFile> open = new OpenFiles<>();

  /**
   * The segments of a store.
   *
   * @param pinHolds whether the pin keeps them from compaction; SnapshotExpiredError if it is over
   */
  LocalSegments(String store, BooleanSupplier pinHolds) {
    this.log = Path.of(store, "log");
    this.pinHolds = pinHolds;
  }

  private RegularFile file(long segment) throws Damage {
    RegularFile found = open.get(segment);
    if (found != null) {
      return found;
    }
    try {
      found = RegularFile.open(log.resolve(String.format("%020d.log", segment)));
    } catch (NoSuchFileException exc) {
      // The pin is looked at now: who unlinks a segment revokes its pins first.
      if (!gone.contains(segment) && !pinHolds.getAsBoolean()) {
        throw SegmentBytes.removed(segment);
      }
      gone.add(segment);
      throw new Damage(
          "CorruptionError",
          "the segment's file is not there, and logstore did not remove it: restore it from a"
              + " backup, or see docs/recovery.md");
    }
    open.put(segment, found);
    return found;
  }

  @Override
  public long sizeBytes(long segment) throws Damage {
    return file(segment).sizeBytes();
  }

  @Override
  public int read(byte[] into, int size, long position, boolean upToDamage) throws Damage {
    RegularFile file = file(Layout.segmentOf(position));
    long offset = Layout.offsetOf(position);
    return upToDamage ? file.readable(into, size, offset) : file.read(into, size, offset);
  }

  @Override
  public void close() {
    open.close();
  }
}
