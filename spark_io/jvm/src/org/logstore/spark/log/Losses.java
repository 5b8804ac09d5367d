package org.logstore.spark.log;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.logstore.spark.LogstoreException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What of a split cannot be read ({@code logstore.scan.record_batches.Losses}): raised, or left out
 * and logged.
 */
final class Losses {
  private static final Logger LOG = LoggerFactory.getLogger("logstore.spark");
  private static final int LOGGED = 3;
  private static final String ADVICE =
      ". The table that option('table', 'damage') reads lists all that is damaged, and"
          + " failOnDataLoss=false reads the rest";

  /** Neighbouring nodes of one segment that cannot be read; {@code entries} at most. */
  private record Loss(
      byte[] stream, Id first, Id last, long nodes, long entries, long position, Damage damage) {

    boolean isIn(long segment) {
      return Layout.segmentOf(position) == segment;
    }

    Loss with(Id otherLast, long more) {
      Id end = Id.max(last, otherLast);
      return new Loss(stream, first, end, nodes + 1, entries + more, position, damage);
    }

    LogstoreException asError(String advice) {
      String in = nodes > 1 ? " in " + nodes + " nodes" : "";
      String message =
          String.format(
              "entries from %s to %s, %d at most%s, cannot be read: %s%s",
              first, last, entries, in, damage.getMessage(), advice);
      boolean placed = position != 0;
      Long segment = placed ? Layout.segmentOf(position) : null;
      Long offset = placed ? Layout.offsetOf(position) : null;
      return new LogstoreException(
          damage.kind(), ErrorText.at(message, stream, segment, offset), damage);
    }
  }

  private final List<Loss> found = new ArrayList<>();
  private final boolean allowed;
  private long entries;

  /** {@code allowed}: the reading goes on behind damage; else {@link #check} raises it. */
  Losses(boolean allowed) {
    this.allowed = allowed;
  }

  /** How many entries could not be read, at most. */
  long entries() {
    return entries;
  }

  /** Whether {@link #check} would raise one, to which what is beside it may be added first. */
  boolean isPending() {
    return !allowed && !found.isEmpty();
  }

  /** Adds a node that cannot be read; {@code beside}: it follows the one added last. */
  void add(Section section, NodeItem item, Damage damage, boolean beside) {
    Id first = Id.max(new Id(item.ms, item.seq), section.start());
    Id last = Id.min(new Id(item.lastMs, item.lastSeq), section.end());
    int before = found.size() - 1;
    if (beside && before >= 0 && found.get(before).isIn(Layout.segmentOf(item.position))) {
      entries += item.live;
      found.set(before, found.get(before).with(last, item.live));
      return;
    }
    check();
    entries += item.live;
    found.add(new Loss(section.name(), first, last, 1, item.live, item.position, damage));
  }

  /** Raises the first loss, unless losses are allowed. */
  void check() {
    if (isPending()) {
      throw found.get(0).asError(ADVICE);
    }
  }

  /** Logs one line for all that was left out of a store, if there is any. */
  void log(String store) {
    if (!allowed || found.isEmpty()) {
      return;
    }
    String[] first = found.stream().limit(LOGGED).map(Losses::text).toArray(String[]::new);
    int more = found.size() - LOGGED;
    LOG.warn(
        "a task left out {} entries, at most, of {}: {}{}",
        entries,
        ErrorText.shown(store),
        String.join("; ", Arrays.asList(first)),
        more > 0 ? "; and " + more + " places more" : "");
  }

  private static String text(Loss loss) {
    LogstoreException error = loss.asError("");
    return error.getMessage().substring(error.kind().length() + 2);
  }
}
