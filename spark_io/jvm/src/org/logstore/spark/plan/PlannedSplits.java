package org.logstore.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.logstore.spark.LogstoreException;
import org.logstore.spark.log.Split;

/**
 * What the tasks of a plan read.
 *
 * @param splits in the order of stores, streams and IDs
 * @param shown the store of each split, without the secrets that a URI may have
 * @param exact whether the entries of all splits are as many as there are rows
 */
public record PlannedSplits(List<Split> splits, List<String> shown, boolean exact) {
  /** The entries of all splits, at most. */
  public long entries() {
    return splits.stream().mapToLong(Split::entries).sum();
  }

  static PlannedSplits of(JsonNode answer) {
    List<Split> splits = new ArrayList<>();
    List<String> shown = new ArrayList<>();
    for (JsonNode each : answer.path("splits")) {
      splits.add(split(each));
      shown.add(each.path("shown").asText());
    }
    return new PlannedSplits(
        List.copyOf(splits), List.copyOf(shown), answer.path("exact").asBoolean(false));
  }

  private static Split split(JsonNode found) {
    byte[] blocks;
    try {
      blocks = found.path("blocks").binaryValue();
    } catch (IOException error) {
      throw new LogstoreException("Error", "the planner told blocks that are no base64", error);
    }
    List<Split.ShippedObject> objects = new ArrayList<>();
    for (JsonNode each : found.path("objects")) {
      objects.add(
          new Split.ShippedObject(
              each.path("path").asText(),
              each.path("size_bytes").asLong(),
              each.path("sha256").asText(),
              each.path("head").asText()));
    }
    return new Split(
        found.path("store").asText(),
        found.path("home").asText(),
        HexFormat.of().parseHex(found.path("uuid").asText()),
        found.path("pin_id").asText(),
        found.path("offset").asLong(),
        found.path("size_bytes").asLong(),
        unsigned(found.path("first").path(0)),
        unsigned(found.path("first").path(1)),
        unsigned(found.path("last").path(0)),
        unsigned(found.path("last").path(1)),
        found.path("nodes").asInt(),
        found.path("entries").asLong(),
        found.path("data_bytes").asLong(),
        blocks == null ? new byte[0] : blocks,
        List.copyOf(objects));
  }

  /** A number of 64 bits without a sign. */
  private static long unsigned(JsonNode number) {
    return number.bigIntegerValue().longValue();
  }
}
