package org.logstore.spark.log;

import java.util.function.Consumer;
import org.logstore.spark.LogstoreException;

/** Goes over the nodes of a split on the driver, without the log. */
public final class PlannedNodes {
  private PlannedNodes() {}

  /**
   * Gives the nodes of a split in which wanted entries may be, in order; SnapshotExpiredError if
   * its plan is over.
   */
  public static void forEach(Split split, Selection selection, Consumer<PlannedNode> each) {
    SnapshotBlocks blocks = SnapshotBlocks.open(split);
    try {
      NodeItem item = new NodeItem();
      int number = 0;
      while (true) {
        long offset = blocks.offset();
        if (!blocks.next()) {
          return;
        }
        Section section = blocks.section();
        Ids wanted = selection.wanted().of(section.name());
        PlannedNode.Block block = new PlannedNode.Block(offset, blocks.offset(), number);
        byte[] body = blocks.body();
        for (int at = blocks.itemsAt(); at < body.length; at = item.after) {
          if (!item.read(body, at, body.length)) {
            throw new LogstoreException(
                "CorruptionError",
                ErrorText.at("a list of nodes is cut off", section.name(), null, null));
          }
          if (selection.has(number) && item.meets(wanted)) {
            each.accept(node(section, wanted, item, number, block));
          }
          number++;
        }
      }
    } finally {
      blocks.close();
    }
  }

  private static PlannedNode node(
      Section section, Ids wanted, NodeItem item, int number, PlannedNode.Block block) {
    return new PlannedNode(
        section.name(),
        number,
        Id.max(item.first(), section.start()),
        Id.min(item.last(), section.end()),
        item.live,
        item.isInside(section, wanted),
        item.position == 0 ? item.sizeBytes : item.frameBytes(),
        block);
  }
}
