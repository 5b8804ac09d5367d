package org.logstore.spark.pushed;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/**
 * A predicate of Spark that holds a column against values, whichever stands first.
 *
 * @param column the column's name
 * @param sign one of = <> < <= > >= <=> IN IS_NULL IS_NOT_NULL
 * @param values of {@code IN} any number, of a comparison one; they may be null
 */
record Comparison(String column, String sign, List<Literal<?>> values) {
  /** What a sign becomes where the value stands first. */
  private static final Map<String, String> MIRRORED =
      Map.of("=", "=", "<>", "<>", "<=>", "<=>", "<", ">", "<=", ">=", ">", "<", ">=", "<=");

  /** The comparison that a predicate is; null if it is none. */
  static Comparison of(Predicate predicate) {
    Expression[] children = predicate.children();
    String sign = predicate.name();
    if (MIRRORED.containsKey(sign) && children.length == 2) {
      if (children[0] instanceof Literal<?> && !(children[1] instanceof Literal<?>)) {
        return of(MIRRORED.get(sign), children[1], List.of(children[0]));
      }
      return of(sign, children[0], List.of(children[1]));
    }
    boolean isKnown = List.of("IN", "IS_NULL", "IS_NOT_NULL").contains(sign);
    if (!isKnown || children.length == 0 || children.length > 1 != sign.equals("IN")) {
      return null;
    }
    return of(sign, children[0], List.of(children).subList(1, children.length));
  }

  private static Comparison of(String sign, Expression of, List<Expression> with) {
    if (!(of instanceof NamedReference column) || column.fieldNames().length != 1) {
      return null;
    }
    List<Literal<?>> values = new ArrayList<>();
    for (Expression each : with) {
      if (!(each instanceof Literal<?> value)) {
        return null;
      }
      values.add(value);
    }
    return new Comparison(column.fieldNames()[0], sign, List.copyOf(values));
  }

  /** Whether one of the values is null. */
  boolean hasNull() {
    return values.stream().anyMatch(each -> each.value() == null);
  }
}
