package org.logstore.spark.log;

import java.io.Serializable;
import java.util.List;

/**
 * What one task reads: a byte range of a snapshot file ({@code logstore.scan.snapshot_file.Split}).
 *
 * @param store the store's directory, or the URI that it was shipped to
 * @param home the directory with pin and snapshot file in pins/
 * @param uuid the store's, 16 bytes
 * @param pinId 32 hexadecimal digits
 * @param offset of the range in the snapshot file
 * @param sizeBytes of the range
 * @param firstMs of the master ID of the first node, unsigned, as are the three that follow
 * @param nodes how many nodes it has
 * @param entries an upper limit of them
 * @param dataBytes an upper limit of what is read of the log
 * @param blocks of a store at a URI the blocks themselves; else empty
 * @param objects of a store at a URI the objects that the blocks need; else empty
 */
public record Split(
    String store,
    String home,
    byte[] uuid,
    String pinId,
    long offset,
    long sizeBytes,
    long firstMs,
    long firstSeq,
    long lastMs,
    long lastSeq,
    int nodes,
    long entries,
    long dataBytes,
    byte[] blocks,
    List<ShippedObject> objects)
    implements Serializable {
  /** A part of it, by byte range, with as many nodes and entries as may be in it. */
  public Split part(long partOffset, long partEnd) {
    return new Split(
        store,
        home,
        uuid,
        pinId,
        partOffset,
        partEnd - partOffset,
        firstMs,
        firstSeq,
        lastMs,
        lastSeq,
        nodes,
        entries,
        dataBytes,
        blocks,
        objects);
  }

  /**
   * A file of a shipped store.
   *
   * @param path the file's path in the store
   * @param sizeBytes the file's size
   * @param sha256 its digest in hexadecimal digits, which is the object's name
   * @param head how the segment begins, in hexadecimal digits
   */
  public record ShippedObject(String path, long sizeBytes, String sha256, String head)
      implements Serializable {}
}
