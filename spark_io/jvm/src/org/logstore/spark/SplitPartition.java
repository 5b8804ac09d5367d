package org.logstore.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.logstore.spark.log.Split;
import org.logstore.spark.plan.PlannedSplits;

/**
 * What one task reads, as Spark carries it.
 *
 * @param shown the store, without the secrets that a URI may have
 */
record SplitPartition(Split split, String shown) implements InputPartition {
  /** The tasks of a plan. */
  static InputPartition[] of(PlannedSplits planned) {
    List<Split> splits = planned.splits();
    InputPartition[] found = new InputPartition[splits.size()];
    for (int at = 0; at < found.length; at++) {
      found[at] = new SplitPartition(splits.get(at), planned.shown().get(at));
    }
    return found;
  }
}
