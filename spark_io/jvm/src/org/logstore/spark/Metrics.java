package org.logstore.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.logstore.spark.log.SplitEntries;

/** What Spark's UI shows of a read. Spark makes the metrics again by the names of their classes. */
public final class Metrics {
  private Metrics() {}

  /** A sum over all tasks. */
  abstract static class Sum extends CustomSumMetric {
    private final String name;
    private final String description;

    Sum(String name, String description) {
      this.name = name;
      this.description = description;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      return description;
    }
  }

  /** Nodes that tasks read. */
  public static final class NodesRead extends Sum {
    private static final String NAME = "nodesRead";

    /** Spark makes one. */
    public NodesRead() {
      super(NAME, "nodes read");
    }
  }

  /** Nodes of the plan that no task looks at. */
  public static final class NodesSkipped extends Sum {
    private static final String NAME = "nodesSkipped";

    /** Spark makes one. */
    public NodesSkipped() {
      super(NAME, "nodes skipped");
    }
  }

  /** Bytes of the log that tasks read. */
  public static final class BytesRead extends Sum {
    private static final String NAME = "bytesRead";

    /** Spark makes one. */
    public BytesRead() {
      super(NAME, "bytes of the log read");
    }
  }

  /** Rows that tasks gave. */
  public static final class RowsRead extends Sum {
    private static final String NAME = "rowsRead";

    /** Spark makes one. */
    public RowsRead() {
      super(NAME, "rows read");
    }
  }

  /** Entries that could not be read, at most. */
  public static final class EntriesLost extends Sum {
    private static final String NAME = "entriesLost";

    /** Spark makes one. */
    public EntriesLost() {
      super(NAME, "entries left out as they cannot be read");
    }
  }

  private record Value(String name, long value) implements CustomTaskMetric {}

  /** All of them. */
  static CustomMetric[] all() {
    return new CustomMetric[] {
      new NodesRead(), new NodesSkipped(), new BytesRead(), new RowsRead(), new EntriesLost()
    };
  }

  /** What a task has read. */
  static CustomTaskMetric[] of(SplitEntries entries, long rows) {
    return new CustomTaskMetric[] {
      new Value(NodesRead.NAME, entries.nodes()),
      new Value(BytesRead.NAME, entries.bytes()),
      new Value(RowsRead.NAME, rows),
      new Value(EntriesLost.NAME, entries.lost())
    };
  }

  /** What the driver has left out. */
  static CustomTaskMetric[] ofSkipped(long nodes) {
    return new CustomTaskMetric[] {new Value(NodesSkipped.NAME, nodes)};
  }
}
