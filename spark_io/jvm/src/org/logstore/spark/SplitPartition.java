package org.logstore.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.logstore.spark.log.Selection;
import org.logstore.spark.log.Split;
import org.logstore.spark.plan.PlannedSplits;

/**
 * What one task reads, as Spark carries it.
 *
 * @param shown the store, without the secrets that a URI may have
 */
record SplitPartition(Split split, Selection selection, String shown) implements InputPartition {
  /** The tasks of a plan of which all is read. */
  static InputPartition[] of(PlannedSplits planned) {
    return of(Parts.of(planned, null, 1));
  }

  /** The tasks of some parts. */
  static InputPartition[] of(List<Part> parts) {
    return parts.stream()
        .map(each -> new SplitPartition(each.split(), each.selection(), each.shown()))
        .toArray(InputPartition[]::new);
  }
}
