package org.logstore.spark.pushed;

import java.util.Arrays;
import java.util.function.Function;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.log.Wanted;

/**
 * What a predicate of Spark says of streams and IDs, by SQL's logic of three values.
 *
 * <p>Invariant: an entry for which the predicate is true is in {@code yes}, one for which it is
 * false is in {@code no}; for one that is in neither it is null. Where the condition is not exact
 * the sets may have more entries.
 *
 * @param yes for which entries it may be true
 * @param no for which it may be false
 * @param isExact whether there are no others in these sets
 */
public record IdCondition(Wanted yes, Wanted no, boolean isExact) {
  private static final IdCondition UNKNOWN = new IdCondition(Wanted.ALL, Wanted.ALL, false);
  private static final IdCondition TRUE = new IdCondition(Wanted.ALL, Wanted.NONE, true);

  /** What a predicate says; {@code columns} gives a column of a name, or null. */
  public static IdCondition of(Predicate predicate, Function<String, ColumnSpec> columns) {
    Expression[] children = predicate.children();
    switch (predicate.name()) {
      case "AND", "OR", "NOT" -> {
        if (!Arrays.stream(children).allMatch(Predicate.class::isInstance)) {
          return UNKNOWN;
        }
        IdCondition first = of((Predicate) children[0], columns);
        if (predicate.name().equals("NOT")) {
          return first.not();
        }
        IdCondition second = of((Predicate) children[1], columns);
        return predicate.name().equals("AND") ? first.and(second) : first.or(second);
      }
      case "ALWAYS_TRUE" -> {
        return TRUE;
      }
      case "ALWAYS_FALSE" -> {
        return TRUE.not();
      }
      default -> {
        Comparison found = Comparison.of(predicate);
        ColumnSpec column = found == null ? null : columns.apply(found.column());
        IdValues values = column == null ? null : IdValues.of(column);
        return values == null ? UNKNOWN : of(found, values);
      }
    }
  }

  private IdCondition not() {
    return new IdCondition(no, yes, isExact);
  }

  private IdCondition and(IdCondition other) {
    return new IdCondition(yes.and(other.yes), no.or(other.no), isExact && other.isExact);
  }

  private IdCondition or(IdCondition other) {
    return not().and(other.not()).not();
  }

  private static IdCondition of(Comparison found, IdValues values) {
    String sign = found.sign();
    if (sign.equals("IS_NULL") || sign.equals("<=>") && found.hasNull()) {
      return new IdCondition(values.nulls(), values.values(), true);
    }
    if (sign.equals("IS_NOT_NULL")) {
      return new IdCondition(values.values(), values.nulls(), true);
    }
    if (sign.equals("IN")) {
      Wanted yes = values.anyOf(found.values());
      if (yes == null) {
        return UNKNOWN;
      }
      Wanted no = found.hasNull() ? Wanted.NONE : values.values().and(yes.not());
      return new IdCondition(yes, no, true);
    }
    if (found.hasNull()) {
      return new IdCondition(Wanted.NONE, Wanted.NONE, true);
    }
    Wanted yes = values.compared(sign.equals("<=>") ? "=" : sign, found.values().get(0));
    if (yes == null) {
      return UNKNOWN;
    }
    Wanted all = sign.equals("<=>") ? Wanted.ALL : values.values();
    return new IdCondition(yes, all.and(yes.not()), true);
  }
}
