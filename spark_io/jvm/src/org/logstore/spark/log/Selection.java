package org.logstore.spark.log;

import java.io.Serializable;
import java.util.BitSet;

/**
 * What of a split is read.
 *
 * @param wanted which entries
 * @param only the nodes that are looked at, by their number in the split, which nobody changes;
 *     null: all
 */
public record Selection(Wanted wanted, BitSet only) implements Serializable {
  /** All of it. */
  public static final Selection ALL = new Selection(Wanted.ALL, null);

  /** Whether the node of a number is looked at. */
  boolean has(int node) {
    return only == null || only.get(node);
  }
}
