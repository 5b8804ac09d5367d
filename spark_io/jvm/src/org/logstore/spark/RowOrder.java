package org.logstore.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.ColumnSpec.Kind;
import org.logstore.spark.columns.StandardValues;
import org.logstore.spark.log.Id;
import org.logstore.spark.log.PlannedNode;
import org.logstore.spark.log.PlannedNodes;

/**
 * In which order each task gives its rows: by stream and ID, where its nodes come in that order.
 *
 * <p>Invariant: nothing is told that was not looked up in the plan. Streams that were named come as
 * they were named; a name that is not UTF-8 is shown as another text, whose order is another one;
 * and a time that is null is not where Spark has it in its order.
 */
final class RowOrder {
  private boolean isByStream = true; // streams, and in each of them IDs
  private boolean isOneEach = true; // each part has one stream
  private Id most = Id.LEAST;

  private byte[] stream; // of the node before, in its part; null: there is none
  private Id last;

  private RowOrder() {}

  /** Whether some columns may have an order, so that the plan is worth a look. */
  static boolean isPossible(List<ColumnSpec> columns) {
    return columns.stream()
        .map(ColumnSpec::kind)
        .anyMatch(
            each ->
                each == Kind.STREAM || each == Kind.ID_KEY || each == Kind.MS || each == Kind.TS);
  }

  /** The order of the rows of each of some parts, by columns that are read. */
  static SortOrder[] of(List<Part> parts, List<ColumnSpec> columns) {
    RowOrder found = new RowOrder();
    for (Part each : parts) {
      found.stream = null;
      PlannedNodes.forEach(each.split(), each.selection(), found::add);
    }
    return found.by(columns);
  }

  private void add(PlannedNode node) {
    if (stream != null) {
      int order = Arrays.compareUnsigned(stream, node.stream());
      boolean follows = order == 0 && last.compareTo(node.first()) < 0;
      isOneEach &= follows;
      isByStream &= follows || order < 0 && isText(stream) && isText(node.stream());
    }
    stream = node.stream();
    last = node.last();
    most = Id.max(most, last);
  }

  private static boolean isText(byte[] name) {
    String text = new String(name, StandardCharsets.UTF_8);
    return Arrays.equals(name, text.getBytes(StandardCharsets.UTF_8));
  }

  private SortOrder[] by(List<ColumnSpec> columns) {
    List<SortOrder> found = new ArrayList<>();
    ColumnSpec streams = column(columns, Kind.STREAM);
    if (streams == null ? isOneEach : isByStream) {
      if (streams != null) {
        found.add(ascending(streams));
      }
      ColumnSpec ids = ids(columns);
      if (ids != null) {
        found.add(ascending(ids));
      }
    }
    return found.toArray(SortOrder[]::new);
  }

  /** The column that tells the order of IDs; null if none does. */
  private ColumnSpec ids(List<ColumnSpec> columns) {
    ColumnSpec key = column(columns, Kind.ID_KEY);
    if (key != null) {
      return key;
    }
    for (Kind kind : new Kind[] {Kind.TS, Kind.MS}) {
      ColumnSpec time = column(columns, kind);
      if (time != null && Long.compareUnsigned(most.ms(), StandardValues.msMost(time)) <= 0) {
        return time;
      }
    }
    return null;
  }

  private static ColumnSpec column(List<ColumnSpec> columns, Kind kind) {
    return columns.stream().filter(each -> each.kind() == kind).findFirst().orElse(null);
  }

  private static SortOrder ascending(ColumnSpec column) {
    return Expressions.sort(
        Expressions.column(column.name()), SortDirection.ASCENDING, NullOrdering.NULLS_FIRST);
  }
}
