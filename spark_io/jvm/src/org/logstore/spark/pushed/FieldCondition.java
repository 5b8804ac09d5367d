package org.logstore.spark.pushed;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;
import org.logstore.spark.columns.ColumnSpec;

/**
 * What a predicate says of fields, as the planner asks the statistics of nodes ({@code
 * logstore.spark_io.pushed_conditions}).
 *
 * <p>Invariant: where the predicate is true, what is told is true. What is not surely compared
 * alike there (NaN, a value of another type than the column) is not told.
 */
public final class FieldCondition {
  private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
  private static final Map<String, String> SIGNS =
      Map.of(
          "=",
          "=",
          "<=>",
          "=",
          "<>",
          "!=",
          "<",
          "<",
          "<=",
          "<=",
          ">",
          ">",
          ">=",
          ">=",
          "IN",
          "in",
          "IS_NULL",
          "null",
          "IS_NOT_NULL",
          "not null");
  private static final Map<String, String> OPPOSITES =
      Map.of(
          "=",
          "!=",
          "<>",
          "=",
          "<",
          ">=",
          "<=",
          ">",
          ">",
          "<=",
          ">=",
          "<",
          "IN",
          "not in",
          "IS_NULL",
          "not null",
          "IS_NOT_NULL",
          "null");

  private final Function<String, ColumnSpec> columns;

  private FieldCondition(Function<String, ColumnSpec> columns) {
    this.columns = columns;
  }

  /**
   * What predicates say that all are true, as JSON; empty if that is nothing. {@code columns} gives
   * a column of a name, or null.
   */
  public static String of(List<Predicate> predicates, Function<String, ColumnSpec> columns) {
    FieldCondition made = new FieldCondition(columns);
    JsonNode found =
        joined("all", predicates.stream().map(each -> made.told(each, false)).toList());
    return found.isNull() ? "" : found.toString();
  }

  private JsonNode told(Predicate predicate, boolean isNegated) {
    List<Predicate> parts = new ArrayList<>();
    for (Expression each : predicate.children()) {
      if (each instanceof Predicate part) {
        parts.add(part);
      }
    }
    String name = predicate.name();
    boolean isJoined = (name.equals("AND") || name.equals("OR")) && parts.size() == 2;
    if (isJoined) {
      String kind = name.equals("AND") != isNegated ? "all" : "any";
      return joined(kind, parts.stream().map(each -> told(each, isNegated)).toList());
    }
    if (name.equals("NOT") && parts.size() == 1) {
      return told(parts.get(0), !isNegated);
    }
    Comparison found = Comparison.of(predicate);
    return found == null ? NullNode.instance : told(found, isNegated);
  }

  /**
   * Null is what is not known: it is left out of what is all true, and makes the rest of no use.
   */
  private static JsonNode joined(String kind, List<JsonNode> parts) {
    List<JsonNode> known = parts.stream().filter(each -> !each.isNull()).toList();
    if (known.isEmpty() || kind.equals("any") && known.size() < parts.size()) {
      return NullNode.instance;
    }
    return JSON.arrayNode().add(kind).add(JSON.arrayNode().addAll(known));
  }

  private JsonNode told(Comparison found, boolean isNegated) {
    ColumnSpec column = columns.apply(found.column());
    String sign = (isNegated ? OPPOSITES : SIGNS).get(found.sign());
    if (column == null || column.kind() != ColumnSpec.Kind.FIELD || sign == null) {
      return NullNode.instance;
    }
    ArrayNode values = JSON.arrayNode();
    for (Literal<?> each : found.values()) {
      String text = each.dataType().equals(column.type()) ? text(each) : null;
      if (text == null) {
        return NullNode.instance;
      }
      values.add(text);
    }
    ObjectNode told = JSON.objectNode();
    told.put("field", new String(column.field(), StandardCharsets.UTF_8));
    told.put("type", column.type().simpleString());
    told.put("sign", sign);
    told.set("values", values);
    return told;
  }

  /** The text of a value as logstore has it; null of one that is not told. */
  private static String text(Literal<?> literal) {
    DataType type = literal.dataType();
    Object value = literal.value();
    if (value instanceof UTF8String text) {
      return UTF8String.fromString(text.toString()).equals(text) ? text.toString() : null;
    }
    if (value instanceof Double number) {
      return Double.isFinite(number) ? number.toString() : null;
    }
    if (value instanceof Decimal number && type instanceof DecimalType) {
      return number.toJavaBigDecimal().toPlainString();
    }
    if (type.equals(DataTypes.DateType) && value instanceof Integer days) {
      return LocalDate.ofEpochDay(days).toString();
    }
    if (type.equals(DataTypes.TimestampType) && value instanceof Long micros) {
      return Instant.EPOCH.plus(micros, ChronoUnit.MICROS).toString();
    }
    boolean isPlain =
        type.equals(DataTypes.IntegerType)
            || type.equals(DataTypes.LongType)
            || type.equals(DataTypes.BooleanType);
    return isPlain && value != null ? value.toString() : null;
  }
}
