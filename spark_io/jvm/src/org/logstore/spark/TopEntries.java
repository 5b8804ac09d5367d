package org.logstore.spark;

import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;
import org.logstore.spark.log.Id;
import org.logstore.spark.log.Ids;
import org.logstore.spark.log.PlannedNode;
import org.logstore.spark.log.PlannedNodes;

/**
 * Finds at which ID the first entries surely end, from either end of all IDs.
 *
 * <p>Only nodes are looked at of which every entry is wanted. As few as have enough entries are
 * kept.
 */
final class TopEntries {
  private final boolean isAscending;
  private final int count;
  private final PriorityQueue<PlannedNode> kept; // the one that is farthest from the end, first
  private long entries;
  private Id last = Id.LEAST;

  private TopEntries(boolean isAscending, int count) {
    this.isAscending = isAscending;
    this.count = count;
    Comparator<PlannedNode> byEnd = Comparator.comparing(this::end);
    kept = new PriorityQueue<>(isAscending ? byEnd.reversed() : byEnd);
  }

  /** What of parts is looked at: the entries up to {@code count}, from one end. */
  static TopEntries of(List<Part> parts, boolean isAscending, int count) {
    TopEntries made = new TopEntries(isAscending, count);
    for (Part each : parts) {
      PlannedNodes.forEach(each.split(), each.selection(), made::add);
    }
    return made;
  }

  private Id end(PlannedNode node) {
    return isAscending ? node.last() : node.first();
  }

  private void add(PlannedNode node) {
    if (node.last().compareTo(last) > 0) {
      last = node.last();
    }
    if (!node.isWhole()) {
      return;
    }
    kept.add(node);
    entries += node.live();
    while (entries - kept.element().live() >= count) {
      entries -= kept.remove().live();
    }
  }

  /** No entry has a larger ID. */
  Id last() {
    return last;
  }

  /**
   * The IDs of the first entries, and of some more; all, if there are too few.
   *
   * @param isByMs whether entries of one millisecond have no order
   */
  Ids ids(boolean isByMs) {
    if (entries < count) {
      return Ids.ALL;
    }
    Id found = end(kept.element());
    if (isAscending) {
      return Ids.of(Id.LEAST, isByMs ? new Id(found.ms(), -1) : found);
    }
    return Ids.of(isByMs ? new Id(found.ms(), 0) : found, Id.MOST);
  }
}
