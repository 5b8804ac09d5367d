package org.logstore.spark.log;

import java.io.Closeable;
import org.apache.hadoop.conf.Configuration;
import org.logstore.spark.LogstoreException;

/**
 * The entries of a split, in the order of the plan ({@code logstore.scan.split_reads.batches}).
 *
 * <p>Every node that is read is checked by its frame's CRC, stream and master ID; where only the
 * number of entries is asked for, only nodes at the ends of intervals are read. There are never
 * fewer entries without an error, or without a loss that is logged at the end. The pin is renewed
 * meanwhile.
 *
 * <p>A node gives all its entries or none. A small one is taken back where it breaks. A large one
 * is gone over first, and then given a batch at a time.
 */
public final class SplitEntries implements Closeable {
  /** A node of more bytes is gone over before any entry of it is given. */
  private static final int AT_ONCE_BYTES = 256 << 10;

  private final Split split;
  private final Selection selection;
  private final Losses losses;
  private final Lease lease; // null of a store at a URI, which has no pins
  private final SnapshotBlocks blocks;
  private final NodeBytes bytes;
  private final NodeReader reader = new NodeReader();
  private final NodeItem item = new NodeItem();

  private boolean inBlock;
  private Ids wanted = Ids.ALL; // of the block's stream
  private int node; // the number in the split of the one that is next
  private int at; // in the block
  private int lostUpto; // where in the block the last node ends that was lost
  private boolean inNode; // a large node of which entries are still to be given
  private long counted; // entries that are still to be told of
  private long nodes;
  private boolean closed;

  /** Opens a split to read all of it; SnapshotExpiredError if its pin is over. */
  public SplitEntries(Split split, boolean failOnDataLoss, Configuration hadoop) {
    this(split, Selection.ALL, failOnDataLoss, hadoop);
  }

  /** Opens a split to read some of it; SnapshotExpiredError if its pin is over. */
  public SplitEntries(
      Split split, Selection selection, boolean failOnDataLoss, Configuration hadoop) {
    this.split = split;
    this.selection = selection;
    losses = new Losses(!failOnDataLoss);
    boolean isShipped = split.blocks().length > 0;
    PinFile pin = isShipped ? null : new PinFile(split.home(), split.pinId());
    lease = isShipped ? null : new Lease(pin);
    SegmentBytes segments =
        isShipped
            ? new ShippedSegments(split, hadoop)
            : new LocalSegments(split.store(), () -> pinHolds(pin));
    blocks = SnapshotBlocks.open(split);
    bytes = new NodeBytes(segments, split.uuid());
  }

  private boolean pinHolds(PinFile pin) {
    if (!split.home().equals(split.store())) {
      return false;
    }
    pin.checkPlanned(System.currentTimeMillis());
    return true;
  }

  /**
   * Gives entries to a sink until it is full or the split is at its end.
   *
   * @return false: the split is at its end, and nothing more comes
   */
  public boolean fill(EntrySink sink) {
    boolean counts = sink.counts();
    if (inBlock) {
      sink.stream(blocks.section().name());
    }
    while (true) {
      if (!giveRest(sink)) {
        return true;
      }
      if (!inBlock || at >= blocks.body().length) {
        losses.check();
        inBlock = blocks.next();
        if (!inBlock) {
          return false;
        }
        at = blocks.itemsAt();
        lostUpto = -1;
        wanted = selection.wanted().of(blocks.section().name());
        sink.stream(blocks.section().name());
      } else if (sink.isFull() && !losses.isPending()) {
        return true;
      } else {
        addNode(sink, counts);
      }
    }
  }

  /** Gives what the last node has left; false if the sink is full before. */
  private boolean giveRest(EntrySink sink) {
    while (counted > 0) {
      if (sink.isFull()) {
        return false;
      }
      int some = (int) Math.min(counted, EntrySink.COUNTED_MAX);
      sink.count(some);
      counted -= some;
    }
    if (inNode) {
      try {
        inNode = !reader.give(sink, true);
      } catch (Damage impossible) { // the same bytes were gone over before
        throw new IllegalStateException(impossible);
      }
    }
    return !inNode;
  }

  private void addNode(EntrySink sink, boolean counts) {
    if (!item.read(blocks.body(), at, blocks.body().length)) {
      losses.check();
      throw new LogstoreException(
          "CorruptionError",
          ErrorText.at("a list of nodes is cut off", blocks.section().name(), null, null));
    }
    if (lease != null) {
      lease.keep();
    }
    if (!isLookedAt(item, node)) {
      node++;
      at = item.after;
      return;
    }
    if (losses.isPending() && at != lostUpto) {
      losses.check(); // no more can be beside it
    }
    if (isRead(item, counts)) {
      readNode(sink, counts);
    } else {
      counted = item.live;
    }
    node++;
    at = item.after;
  }

  private boolean isLookedAt(NodeItem item, int number) {
    return selection.has(number) && item.meets(wanted);
  }

  /** Whether a node that is looked at is read: where entries are counted its item may suffice. */
  private boolean isRead(NodeItem item, boolean counts) {
    return !counts || !item.isInside(blocks.section(), wanted);
  }

  private void readNode(EntrySink sink, boolean counts) {
    int rows = sink.rows();
    try {
      bytes.find(
          item,
          blocks.section(),
          blocks.body(),
          at,
          node,
          (other, number) -> isLookedAt(other, number) && isRead(other, counts));
      reader.open(
          blocks.section(), wanted, blocks.body(), item, bytes.data(), bytes.from(), bytes.to());
      nodes++;
      boolean isLarge = bytes.to() - bytes.from() > AT_ONCE_BYTES;
      if (counts || isLarge) {
        reader.count();
      }
      if (counts) {
        counted = reader.taken();
      } else if (isLarge) {
        reader.rewind();
        inNode = true;
      } else {
        reader.give(sink, false);
      }
    } catch (Damage damage) {
      sink.backTo(rows);
      losses.add(blocks.section(), item, damage, at == lostUpto);
      lostUpto = item.after;
    }
  }

  /** How many nodes were read. */
  public long nodes() {
    return nodes;
  }

  /** How many bytes of segments were read. */
  public long bytes() {
    return bytes.read();
  }

  /** How many entries were left out because they cannot be read, at most. */
  public long lost() {
    return losses.entries();
  }

  /** Closes the files, and logs what was left out. */
  @Override
  public void close() {
    if (!closed) {
      closed = true;
      bytes.close();
      blocks.close();
      losses.log(split.store());
    }
  }
}
