package org.logstore.spark;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.logstore.spark.log.PlannedNode;
import org.logstore.spark.log.PlannedNodes;
import org.logstore.spark.log.Selection;
import org.logstore.spark.log.Split;
import org.logstore.spark.plan.PlannedSplits;

/**
 * Cuts what a query reads of a plan into what its tasks read.
 *
 * <p>Invariants: the parts have every wanted entry of the plan once, in its order. What is narrow
 * is cut anew, so that a small part of a plan is not the work of one task.
 */
final class Parts {
  private static final long PART_BYTES_MIN = 4L << 20; // a task costs as much as reading 3 MB
  private static final long PART_BYTES_MAX = 64L << 20;

  private final List<Part> found = new ArrayList<>();
  private final long targetBytes;

  // The part that is being made; none if there is no first node.
  private Split split;
  private String shown;
  private Selection selection;
  private PlannedNode first;
  private PlannedNode last;
  private BitSet only = new BitSet();
  private long entries;
  private long certain;
  private long sizeBytes;

  private Parts(long targetBytes) {
    this.targetBytes = targetBytes;
  }

  /**
   * The parts of a plan.
   *
   * @param selections what is read of each split; null: all of them as they are
   * @param cores how many tasks run at once
   */
  static List<Part> of(PlannedSplits planned, List<Selection> selections, int cores) {
    if (selections == null) {
      return whole(planned);
    }
    long[] total = new long[1];
    for (int at = 0; at < selections.size(); at++) {
      Split split = planned.splits().get(at);
      PlannedNodes.forEach(split, selections.get(at), node -> total[0] += node.sizeBytes());
    }
    long each = Math.max(PART_BYTES_MIN, Math.min(PART_BYTES_MAX, total[0] / cores + 1));
    Parts made = new Parts(each);
    for (int at = 0; at < selections.size(); at++) {
      made.split = planned.splits().get(at);
      made.shown = planned.shown().get(at);
      made.selection = selections.get(at);
      PlannedNodes.forEach(made.split, made.selection, made::add);
      made.finish();
    }
    return List.copyOf(made.found);
  }

  private static List<Part> whole(PlannedSplits planned) {
    List<Part> found = new ArrayList<>();
    for (int at = 0; at < planned.splits().size(); at++) {
      Split split = planned.splits().get(at);
      long certain = planned.exact() ? split.entries() : 0;
      found.add(
          new Part(
              split,
              planned.shown().get(at),
              Selection.ALL,
              split.nodes(),
              split.entries(),
              certain,
              split.dataBytes()));
    }
    return List.copyOf(found);
  }

  private void add(PlannedNode node) {
    boolean isShipped = split.blocks().length > 0; // it carries its blocks: more parts cost more
    if (!isShipped && first != null && sizeBytes + node.sizeBytes() > targetBytes) {
      finish();
    }
    if (first == null) {
      first = node;
    }
    only.set(node.number() - firstNode());
    last = node;
    entries += node.live();
    certain += node.isWhole() ? node.live() : 0;
    sizeBytes += node.sizeBytes();
  }

  /** The number of the first node of the part's first block, in the split. */
  private int firstNode() {
    return split.blocks().length > 0 ? 0 : first.block().firstNode();
  }

  private void finish() {
    if (first == null) {
      return;
    }
    boolean isShipped = split.blocks().length > 0;
    Split part = isShipped ? split : split.part(first.block().offset(), last.block().end());
    Selection chosen = new Selection(selection.wanted(), only);
    long nodes = only.cardinality();
    found.add(new Part(part, shown, chosen, nodes, entries, certain, sizeBytes));
    first = null;
    only = new BitSet();
    entries = 0;
    certain = 0;
    sizeBytes = 0;
  }
}
