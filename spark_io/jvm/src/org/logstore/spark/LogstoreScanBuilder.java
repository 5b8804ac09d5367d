package org.logstore.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.ColumnSpec.Kind;
import org.logstore.spark.columns.Mode;
import org.logstore.spark.columns.StandardValues;
import org.logstore.spark.log.Ids;
import org.logstore.spark.log.Wanted;
import org.logstore.spark.pushed.FieldCondition;
import org.logstore.spark.pushed.IdCondition;

/**
 * Decides what of a load a query reads.
 *
 * <p>Spark also makes one for a streaming query, which it asks for nothing but the scan; and it
 * does not say which of both it is until the scan is asked for a batch or a stream.
 */
final class LogstoreScanBuilder
    implements ScanBuilder,
        SupportsPushDownRequiredColumns,
        SupportsPushDownV2Filters,
        SupportsPushDownAggregates,
        SupportsPushDownTopN,
        SupportsPushDownLimit {
  private static final Set<Kind> ORDERED = EnumSet.of(Kind.ID_KEY, Kind.MS, Kind.TS);

  private final Load load;
  private final List<Predicate> pushed = new ArrayList<>();
  private Set<String> required;
  private boolean isPruned;
  private Asked asked = Asked.ALL;
  private String told = "";
  private boolean isFiltered; // by Spark, after the scan
  private AggregateQuery query;
  private Summaries summaries; // null: it is no aggregate, or tasks read it

  LogstoreScanBuilder(Load load) {
    this.load = load;
    required = new TreeSet<>(Arrays.asList(load.schema().fieldNames()));
  }

  @Override
  public void pruneColumns(StructType wanted) {
    required = new TreeSet<>(Arrays.asList(wanted.fieldNames()));
    isPruned = true;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    if (!load.whyPython().isEmpty()) {
      return predicates;
    }
    List<Predicate> left = new ArrayList<>();
    for (Predicate each : predicates) {
      IdCondition found = IdCondition.of(each, this::column);
      asked = asked.with(asked.wanted().and(found.yes()));
      (found.isExact() ? pushed : left).add(each);
    }
    if (!pushed.isEmpty()) {
      told += ", pushed filters: " + pushed;
    }
    isFiltered = !left.isEmpty();
    if (load.columns().mode() != Mode.FAILFAST) { // else a malformed entry might not be seen
      asked = asked.with(FieldCondition.of(left, this::column));
      told += asked.condition().isEmpty() ? "" : ", filters asked of nodes: " + left;
    }
    return left.toArray(Predicate[]::new);
  }

  /** How a column of a name is read; null if there is none. */
  private ColumnSpec column(String name) {
    int at = Arrays.asList(load.schema().fieldNames()).indexOf(name);
    return at < 0 ? null : load.column(at);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.toArray(Predicate[]::new);
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return pushAggregation(aggregation);
  }

  /**
   * Where losses are allowed, or malformed entries leave rows out, tasks must look at each entry.
   */
  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    summaries = null;
    if (!load.whyPython().isEmpty() || isFiltered || !load.givesEachEntry()) {
      return false;
    }
    query = AggregateQuery.of(aggregation, this::column);
    summaries = query == null ? null : Summaries.of(load, asked, query);
    return summaries != null;
  }

  @Override
  public boolean pushLimit(int limit) {
    if (!load.whyPython().isEmpty() || isFiltered || summaries != null) {
      return false;
    }
    asked = asked.with(limit);
    told += ", pushed limit: " + limit;
    return true;
  }

  /** Entries are ordered by ID: what comes behind the last one of the first is not read. */
  @Override
  public boolean pushTopN(SortOrder[] orders, int limit) {
    boolean isPushed =
        load.whyPython().isEmpty() && !isFiltered && summaries == null && load.givesEachEntry();
    ColumnSpec column = null;
    if (isPushed && orders[0].expression() instanceof NamedReference found) {
      column = found.fieldNames().length == 1 ? column(found.fieldNames()[0]) : null;
    }
    if (column == null || !ORDERED.contains(column.kind())) {
      return false;
    }
    boolean isAscending = orders[0].direction() == SortDirection.ASCENDING;
    boolean isByMs = column.kind() != Kind.ID_KEY;
    TopEntries top = TopEntries.of(load.parts(asked), isAscending, limit);
    // Where a time is null its ID is larger than that of each time.
    boolean isNullLast = isAscending == (orders[0].nullOrdering() == NullOrdering.NULLS_LAST);
    long most = isByMs ? StandardValues.msMost(column) : -1;
    if (!isNullLast && Long.compareUnsigned(top.last().ms(), most) > 0) {
      return false;
    }
    Ids ids = top.ids(isByMs);
    if (ids.equals(Ids.ALL)) {
      return false;
    }
    asked = asked.with(asked.wanted().and(Wanted.of(ids)));
    told += ", pushed top " + limit + " by " + Arrays.toString(orders);
    return true;
  }

  /** Each task stops by itself, and Spark sorts. */
  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public Scan build() {
    String why = load.whyPython();
    List<Integer> kept = load.numbers(required);
    if (!why.isEmpty()) {
      kept.stream().map(load::place).filter(Objects::nonNull).forEach(each -> refuse(each, why));
      return new PythonScan(load, why);
    }
    if (summaries != null) {
      return new AggregateScan(query, summaries, load.columns().shown() + told);
    }
    return new LogstoreScan(load, kept, isPruned ? kept : load.numbers(), asked, told);
  }

  private static void refuse(PlaceColumn column, String why) {
    throw new LogstoreException(
        "OptionError",
        "column '"
            + column.name()
            + "' is one of the reader in the JVM, and Python reads here, for "
            + why
            + ": leave the column out");
  }
}
