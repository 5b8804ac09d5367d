package org.logstore.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.logstore.spark.log.PlannedNode;
import org.logstore.spark.log.PlannedNodes;
import org.logstore.spark.log.Selection;
import org.logstore.spark.log.SplitEntries;
import org.logstore.spark.log.Summary;

/**
 * What the driver finds of a query's entries without a task: how many, their least and largest IDs.
 *
 * <p>Invariant: it is exact. Where more than a few nodes had to be read there is none.
 */
final class Summaries {
  /** More are read by tasks. */
  private static final int NODES_MAX = 64;

  private final Load load;
  private final AggregateQuery query;
  private final Map<String, Summary> found = new TreeMap<>();
  private final List<Reading> readings = new ArrayList<>();
  private int nodes;
  private boolean isRead;

  /** What is read of a part: the nodes whose entries are counted, and those that others count. */
  private record Reading(Part part, BitSet counted, BitSet others) {}

  private Summaries(Load load, AggregateQuery query) {
    this.load = load;
    this.query = query;
  }

  /** Of what is asked of a load; null if tasks must read it. */
  static Summaries of(Load load, Asked asked, AggregateQuery query) {
    Summaries made = new Summaries(load, query);
    if (query.isCount() && !asked.isNarrow() && load.splits().exact()) {
      made.of("").add(load.splits().entries());
      return made;
    }
    List<Part> parts = load.parts(asked);
    if (!query.isByStream()) {
      made.of("");
    }
    for (Part each : parts) {
      PlannedNodes.forEach(
          each.split(), each.selection(), node -> made.of(made.key(node)).bound(node));
    }
    boolean fits = made.found.values().stream().allMatch(each -> query.fits(each.end()));
    return fits && made.choose(parts) ? made : null;
  }

  private boolean choose(List<Part> parts) {
    for (Part part : parts) {
      Reading reading = new Reading(part, new BitSet(), new BitSet());
      Consumer<PlannedNode> choose =
          node -> {
            if (of(key(node)).isRead(node)) {
              (node.isWhole() ? reading.others : reading.counted).set(node.number());
              nodes++;
            }
          };
      PlannedNodes.forEach(part.split(), part.selection(), choose);
      if (nodes > NODES_MAX) {
        return false;
      }
      readings.add(reading);
    }
    return true;
  }

  /** By stream, as text; all of them are one if they are not asked for one by one. */
  Map<String, Summary> all() {
    if (!isRead) {
      isRead = true;
      for (Reading each : readings) {
        read(each.part, each.counted, true);
        read(each.part, each.others, false);
      }
    }
    return found;
  }

  private void read(Part part, BitSet only, boolean isCounted) {
    if (only.isEmpty()) {
      return;
    }
    IdSink sink =
        new IdSink((stream, id) -> of(query.isByStream() ? stream : "").entry(id, isCounted));
    Selection selection = new Selection(part.selection().wanted(), only);
    try (SplitEntries entries = new SplitEntries(part.split(), selection, true, load.hadoop())) {
      while (entries.fill(sink)) {
        // it takes all
      }
    }
  }

  private String key(PlannedNode node) {
    return query.isByStream() ? new String(node.stream(), StandardCharsets.UTF_8) : "";
  }

  private Summary of(String key) {
    return found.computeIfAbsent(key, each -> query.summary());
  }
}
