package org.logstore.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** Aggregates that the driver has found: there is no task. */
final class AggregateScan implements LocalScan {
  private final AggregateQuery query;
  private final Summaries summaries;
  private final String of;

  /** {@code of} says of what, in the plan of the query. */
  AggregateScan(AggregateQuery query, Summaries summaries, String of) {
    this.query = query;
    this.summaries = summaries;
    this.of = of;
  }

  @Override
  public String description() {
    return "logstore (read by the JVM) " + of + ", pushed aggregates: " + query;
  }

  @Override
  public StructType readSchema() {
    return query.schema();
  }

  @Override
  public InternalRow[] rows() {
    return query.rows(summaries.all());
  }
}
