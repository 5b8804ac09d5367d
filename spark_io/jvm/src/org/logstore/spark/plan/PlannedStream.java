package org.logstore.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.UUID;

/**
 * A streaming query as the planner has it: offsets, and what is read between two of them.
 *
 * <p>Offsets are JSON, written by Python: under either reader a checkpoint has the same text. The
 * planner holds the pins of batches that are not committed; if it ends, each request of the query
 * is an error that says so.
 */
public final class PlannedStream {
  private final Planner planner;
  private final Map<String, String> options;
  private final String name = UUID.randomUUID().toString();
  private final long maxRows;
  private final long maxBytes;
  private String ends;

  /** Begins a query with the options of a load. */
  public PlannedStream(Planner planner, Map<String, String> options) {
    this.planner = planner;
    this.options = options;
    JsonNode found = planner.ask(request("stream"));
    maxRows = found.path("max_rows").asLong(0);
    maxBytes = found.path("max_bytes").asLong(0);
  }

  /** How many rows a batch has at most; 0: no limit. */
  public long maxRows() {
    return maxRows;
  }

  /** How many bytes a batch has at most; 0: no limit. */
  public long maxBytes() {
    return maxBytes;
  }

  /** Where the query begins if it is new. */
  public String initial() {
    return planner.ask(request("initial")).path("offset").asText();
  }

  /** Reads up to the entries that there are now, and then no more. */
  public void prepareForAvailableNow() {
    planner.ask(request("available now"));
  }

  /** Where the batch from an offset on ends; the same offset if there is nothing new. */
  public String latest(String start, boolean limited) {
    JsonNode found = planner.ask(request("latest").put("start", start).put("limited", limited));
    ends = found.path("ends").asText(null);
    return found.path("offset").asText();
  }

  /** Where the streams ended when the last batch was looked for; null if none was. */
  public String ends() {
    return ends;
  }

  /** What lies between two offsets, pinned until it is committed. */
  public PlannedSplits splits(String start, String end) {
    return PlannedSplits.of(planner.ask(request("batch").put("start", start).put("end", end)));
  }

  /** The batch that ends at an offset is done, and all before it. */
  public void commit(String end) {
    planner.ask(request("commit").put("end", end));
  }

  /** The query ends. */
  public void stop() {
    planner.ask(request("stop"));
  }

  private ObjectNode request(String kind) {
    return planner.request(kind, options).put("query", name);
  }
}
