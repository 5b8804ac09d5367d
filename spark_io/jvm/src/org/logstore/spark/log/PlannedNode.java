package org.logstore.spark.log;

/**
 * A node of a split in which wanted entries may be.
 *
 * @param stream the name of its stream
 * @param number its number in the split
 * @param first no entry of it that is wanted has a smaller ID
 * @param last no entry of it that is wanted has a larger ID
 * @param live how many entries it has, of which some may not be wanted
 * @param isWhole whether all of them are
 * @param sizeBytes what is read of the log for it
 * @param block where its block lies
 */
public record PlannedNode(
    byte[] stream,
    int number,
    Id first,
    Id last,
    long live,
    boolean isWhole,
    long sizeBytes,
    Block block) {
  /**
   * A block of a snapshot file.
   *
   * @param offset in the file
   * @param end in the file
   * @param firstNode the number in the split of its first node
   */
  public record Block(long offset, long end, int firstNode) {}
}
