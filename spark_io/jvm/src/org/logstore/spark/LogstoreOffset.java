package org.logstore.spark;

import org.apache.spark.sql.connector.read.streaming.Offset;

/** Where a batch of a streaming query ends, as it stands in the query's checkpoint. */
final class LogstoreOffset extends Offset {
  private final String json;

  LogstoreOffset(String json) {
    this.json = json;
  }

  @Override
  public String json() {
    return json;
  }
}
