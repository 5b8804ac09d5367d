package org.logstore.spark;

import org.logstore.spark.log.Wanted;

/**
 * What a query asks of a load, beside columns.
 *
 * @param wanted which entries
 * @param condition of those, which nodes may be left out, as the planner understands it; empty:
 *     none
 * @param limit how many rows are enough; -1: all
 */
record Asked(Wanted wanted, String condition, int limit) {
  /** Everything. */
  static final Asked ALL = new Asked(Wanted.ALL, "", -1);

  /** Whether nodes are left out. */
  boolean isNarrow() {
    return !wanted.equals(Wanted.ALL) || !condition.isEmpty();
  }

  Asked with(Wanted other) {
    return new Asked(other, condition, limit);
  }

  Asked with(String otherCondition) {
    return new Asked(wanted, otherCondition, limit);
  }

  Asked with(int otherLimit) {
    return new Asked(wanted, condition, otherLimit);
  }
}
