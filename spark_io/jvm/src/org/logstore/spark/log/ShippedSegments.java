package org.logstore.spark.log;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.logstore.spark.LogstoreException;

/**
 * The segments of a store that was shipped to a URI, read where they are.
 *
 * <p>An object that a newer state made needless is looked for again in the newest manifest, whose
 * segment of that number begins with the same bytes; if there is none, SnapshotExpiredError. Reads
 * that follow each other fetch more at a time.
 */
final class ShippedSegments implements SegmentBytes {
  private static final int AHEAD_BYTES = 64 << 10;
  private static final int AHEAD_MAX_BYTES = 8 << 20;

  private final ShippedPlace place;
  private final byte[] uuid;
  private final Map<String, Split.ShippedObject> objects = new HashMap<>();
  private final OpenFiles<FSDataInputStream> open = new OpenFiles<>();

  // What was read last.
  private byte[] kept = new byte[0];
  private int keptBytes;
  private long keptPosition;
  private int aheadBytes = AHEAD_BYTES;

  ShippedSegments(Split split, Configuration hadoop) {
    place = new ShippedPlace(split.store(), hadoop);
    uuid = split.uuid();
    split.objects().forEach(each -> objects.put(each.path(), each));
  }

  private Split.ShippedObject object(long segment) {
    Split.ShippedObject found = objects.get(String.format("log/%020d.log", segment));
    if (found == null) {
      throw SegmentBytes.removed(segment);
    }
    return found;
  }

  @Override
  public long sizeBytes(long segment) {
    return object(segment).sizeBytes();
  }

  @Override
  public int read(byte[] into, int size, long position, boolean upToDamage) {
    Split.ShippedObject object = object(Layout.segmentOf(position));
    long room = Math.max(0, object.sizeBytes() - Layout.offsetOf(position));
    int wanted = (int) Math.min(size, room);
    long at = position - keptPosition;
    if (at < 0 || at > keptBytes - wanted) {
      boolean follows = at >= 0 && at <= keptBytes + (long) aheadBytes;
      aheadBytes = follows ? Math.min(2 * aheadBytes, AHEAD_MAX_BYTES) : AHEAD_BYTES;
      if (wanted >= aheadBytes) {
        keptBytes = 0;
        keptPosition = position + wanted;
        return fetch(object, into, wanted, position);
      }
      int most = (int) Math.min(aheadBytes, room);
      if (kept.length < most) {
        kept = new byte[most];
      }
      keptPosition = position;
      keptBytes = 0;
      keptBytes = fetch(object, kept, most, position);
      at = 0;
      wanted = Math.min(wanted, keptBytes);
    }
    System.arraycopy(kept, (int) at, into, 0, wanted);
    return wanted;
  }

  private int fetch(Split.ShippedObject object, byte[] into, int size, long position) {
    long segment = Layout.segmentOf(position);
    try {
      try {
        return readAt(file(object, segment), into, size, Layout.offsetOf(position));
      } catch (FileNotFoundException gone) {
        replace(object, segment);
        return readAt(open.get(segment), into, size, Layout.offsetOf(position));
      }
    } catch (FileNotFoundException gone) {
      throw lost(
          object, "its object was deleted there; ship again from the store, which sends it anew");
    } catch (IOException exc) {
      throw place.failed("reading " + object.path(), exc);
    }
  }

  private FSDataInputStream file(Split.ShippedObject object, long segment) throws IOException {
    FSDataInputStream found = open.get(segment);
    if (found == null) {
      found = place.open(object.sha256());
      open.put(segment, found);
    }
    return found;
  }

  /** Takes the object of the newest state instead. */
  private void replace(Split.ShippedObject object, long segment) throws IOException {
    String newest = place.newestObject(object, uuid);
    if (newest == null) {
      throw lost(
          object,
          "another ship published a newer state meanwhile, or objects were deleted by hand; open"
              + " it, or load, again (who ships says by 'keep' how long old objects stay; those of"
              + " before an erasure go at once)");
    }
    FSDataInputStream before = open.put(segment, place.open(newest));
    if (before != null) {
      OpenFiles.quietly(before);
    }
  }

  private LogstoreException lost(Split.ShippedObject object, String why) {
    return new LogstoreException(
        "SnapshotExpiredError",
        object.path() + " is not at " + place.shown() + " any more: " + why);
  }

  private static int readAt(FSDataInputStream file, byte[] into, int size, long offset)
      throws IOException {
    int done = 0;
    while (done < size) {
      int found = file.read(offset + done, into, done, size - done);
      if (found <= 0) {
        break;
      }
      done += found;
    }
    return done;
  }

  @Override
  public void close() {
    open.close();
  }
}
