package org.logstore.spark.log;

/**
 * How many entries there are, and the least and the most of their IDs, from what a plan says of
 * nodes, and from the few nodes that must be read.
 *
 * <p>It is made in three steps: {@link #bound} is called for each node, then {@link #isRead} says
 * which are to be read, then {@link #entry} is called for each entry of those.
 */
public final class Summary {
  private final boolean countsEntries;
  private final boolean hasLeast;
  private final boolean hasMost;

  private long count;
  private Id leastUpto; // there is an entry that is not larger; null: that is not known
  private Id mostFrom; // there is one that is not smaller
  private Id end = Id.LEAST;
  private Id least;
  private Id most;

  /**
   * Of nothing yet. {@code countsEntries}, {@code hasLeast}, {@code hasMost}: what is asked for.
   */
  public Summary(boolean countsEntries, boolean hasLeast, boolean hasMost) {
    this.countsEntries = countsEntries;
    this.hasLeast = hasLeast;
    this.hasMost = hasMost;
  }

  /** Takes entries of which only the number is asked for. */
  public void add(long entries) {
    count += entries;
  }

  /** Takes what the plan says of a node. */
  public void bound(PlannedNode node) {
    end = Id.max(end, node.last());
    if (!node.isWhole() || node.live() == 0) {
      return;
    }
    count += node.live();
    leastUpto = leastUpto == null ? node.last() : Id.min(leastUpto, node.last());
    mostFrom = mostFrom == null ? node.first() : Id.max(mostFrom, node.first());
  }

  /** Whether a node must be read; all were taken before. */
  public boolean isRead(PlannedNode node) {
    return countsEntries && !node.isWhole()
        || hasLeast && (leastUpto == null || node.first().compareTo(leastUpto) <= 0)
        || hasMost && (mostFrom == null || node.last().compareTo(mostFrom) >= 0);
  }

  /** Takes an entry of a node that is read; {@code isCounted}: its node has not counted it. */
  public void entry(Id id, boolean isCounted) {
    count += isCounted ? 1 : 0;
    least = least == null ? id : Id.min(least, id);
    most = most == null ? id : Id.max(most, id);
  }

  /** How many entries there are. */
  public long count() {
    return count;
  }

  /** The least ID; null if there is no entry. */
  public Id least() {
    return least;
  }

  /** The largest ID; null if there is no entry. */
  public Id most() {
    return most;
  }

  /** No ID is larger. */
  public Id end() {
    return end;
  }
}
