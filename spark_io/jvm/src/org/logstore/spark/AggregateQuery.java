package org.logstore.spark;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.ColumnSpec.Kind;
import org.logstore.spark.columns.StandardValues;
import org.logstore.spark.log.Id;
import org.logstore.spark.log.Summary;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Aggregates that a plan, and a few nodes, answer: how many entries there are, the least and the
 * most of columns that tell of IDs, of all streams or of each.
 */
final class AggregateQuery {
  private static final Set<Kind> NEVER_NULL =
      EnumSet.of(Kind.STREAM, Kind.ID, Kind.ID_KEY, Kind.FIELDS, Kind.PAIRS, Kind.STORE);
  private static final Set<Kind> ORDERED = EnumSet.of(Kind.ID_KEY, Kind.MS, Kind.TS);

  /** What is made of entries. */
  private enum Made {
    COUNT,
    LEAST,
    MOST
  }

  /** One of the aggregates; a count has no column. */
  private record Wanted(Made made, ColumnSpec column) {}

  private final List<Wanted> wanted;
  private final boolean isByStream;

  private AggregateQuery(List<Wanted> wanted, boolean isByStream) {
    this.wanted = wanted;
    this.isByStream = isByStream;
  }

  /** What Spark asks for; null if it is something else. {@code columns} gives a column or null. */
  static AggregateQuery of(Aggregation asked, Function<String, ColumnSpec> columns) {
    Expression[] groups = asked.groupByExpressions();
    boolean isByStream = groups.length > 0;
    if (isByStream) {
      ColumnSpec group = column(groups[0], columns);
      if (groups.length > 1 || group == null || group.kind() != Kind.STREAM) {
        return null;
      }
    }
    List<Wanted> found = new ArrayList<>();
    for (AggregateFunc each : asked.aggregateExpressions()) {
      Wanted one = of(each, columns);
      if (one == null) {
        return null;
      }
      found.add(one);
    }
    return new AggregateQuery(List.copyOf(found), isByStream);
  }

  private static Wanted of(AggregateFunc asked, Function<String, ColumnSpec> columns) {
    if (asked instanceof CountStar) {
      return new Wanted(Made.COUNT, null);
    }
    if (asked instanceof Count count) {
      ColumnSpec column = column(count.column(), columns);
      boolean isEach = column != null && NEVER_NULL.contains(column.kind());
      return isEach && !count.isDistinct() ? new Wanted(Made.COUNT, null) : null;
    }
    boolean isMin = asked instanceof Min;
    if (!isMin && !(asked instanceof Max)) {
      return null;
    }
    ColumnSpec column = column(asked.children()[0], columns);
    if (column == null || !ORDERED.contains(column.kind())) {
      return null;
    }
    return new Wanted(isMin ? Made.LEAST : Made.MOST, column);
  }

  private static ColumnSpec column(Expression asked, Function<String, ColumnSpec> columns) {
    boolean isColumn = asked instanceof NamedReference found && found.fieldNames().length == 1;
    return isColumn ? columns.apply(((NamedReference) asked).fieldNames()[0]) : null;
  }

  boolean isByStream() {
    return isByStream;
  }

  /** Where entries are summed up. */
  Summary summary() {
    return new Summary(has(Made.COUNT) || isByStream, has(Made.LEAST), has(Made.MOST));
  }

  private boolean has(Made made) {
    return wanted.stream().anyMatch(each -> each.made == made);
  }

  /** Whether no column is null of IDs up to one: nulls are neither least nor most. */
  boolean fits(Id end) {
    return wanted.stream()
        .filter(each -> each.column != null && each.column.kind() != Kind.ID_KEY)
        .allMatch(each -> Long.compareUnsigned(end.ms(), StandardValues.msMost(each.column)) <= 0);
  }

  /** The columns of the answer, as Spark wants them. */
  StructType schema() {
    List<StructField> fields = new ArrayList<>();
    if (isByStream) {
      fields.add(DataTypes.createStructField("stream", DataTypes.StringType, true));
    }
    for (Wanted each : wanted) {
      fields.add(
          DataTypes.createStructField(
              shown(each), each.column == null ? DataTypes.LongType : each.column.type(), true));
    }
    return new StructType(fields.toArray(StructField[]::new));
  }

  private static String shown(Wanted each) {
    return switch (each.made) {
      case COUNT -> "count(*)";
      case LEAST -> "min(" + each.column.name() + ")";
      case MOST -> "max(" + each.column.name() + ")";
    };
  }

  /** The rows of the answer. */
  InternalRow[] rows(Map<String, Summary> found) {
    return found.entrySet().stream()
        .filter(each -> !isByStream || each.getValue().count() > 0)
        .map(each -> row(each.getKey(), each.getValue()))
        .toArray(InternalRow[]::new);
  }

  private InternalRow row(String stream, Summary summary) {
    List<Object> values = new ArrayList<>();
    if (isByStream) {
      values.add(UTF8String.fromString(stream));
    }
    for (Wanted each : wanted) {
      values.add(
          switch (each.made) {
            case COUNT -> summary.count();
            case LEAST -> value(each.column, summary.least());
            case MOST -> value(each.column, summary.most());
          });
    }
    return InternalRow.fromSeq(CollectionConverters.asScala(values).toSeq());
  }

  private static Object value(ColumnSpec column, Id id) {
    if (id == null) {
      return null;
    }
    if (column.kind() == Kind.ID_KEY) {
      return ByteBuffer.allocate(16).putLong(id.ms()).putLong(id.seq()).array();
    }
    if (column.kind() == Kind.TS) {
      return id.ms() * 1000;
    }
    if (column.type() instanceof DecimalType type) {
      return Decimal.apply(
          new BigDecimal(Long.toUnsignedString(id.ms())), type.precision(), type.scale());
    }
    return id.ms();
  }

  @Override
  public String toString() {
    String functions =
        wanted.stream().map(AggregateQuery::shown).collect(Collectors.joining(", ", "[", "]"));
    return isByStream ? functions + " by stream" : functions;
  }

  /** Whether a query is for nothing but the number of entries. */
  boolean isCount() {
    return !isByStream && wanted.stream().allMatch(each -> each.made == Made.COUNT);
  }
}
