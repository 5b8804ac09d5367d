package org.logstore.spark.plan;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.logstore.spark.LogstoreException;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.ColumnSpec.Kind;
import org.logstore.spark.columns.Mode;

/**
 * How the columns of a read are read, as the planner decided it.
 *
 * @param columns one for each column of the schema, in its order
 * @param mode what is done with malformed records
 * @param failOnDataLoss whether what cannot be read is an error
 * @param mustBeJvm whether the Python source may not read in its place
 * @param stores the directories and URIs of the stores
 * @param shown the same without the secrets that a URI may have
 */
public record PlannedColumns(
    List<ColumnSpec> columns,
    Mode mode,
    boolean failOnDataLoss,
    boolean mustBeJvm,
    List<String> stores,
    List<String> shown) {

  static PlannedColumns of(JsonNode answer, StructType schema) {
    JsonNode found = answer.path("columns");
    if (found.size() != schema.size()) {
      throw new LogstoreException("Error", "the planner told other columns than it was asked for");
    }
    List<ColumnSpec> columns = new ArrayList<>();
    for (int at = 0; at < schema.size(); at++) {
      StructField field = schema.fields()[at];
      String kind = found.get(at).path("kind").asText("").toUpperCase(Locale.ROOT);
      byte[] name = found.get(at).path("field").asText("").getBytes(StandardCharsets.UTF_8);
      columns.add(new ColumnSpec(field.name(), Kind.valueOf(kind), name, field.dataType()));
    }
    return new PlannedColumns(
        List.copyOf(columns),
        Mode.valueOf(answer.path("mode").asText("")),
        answer.path("fail_on_loss").asBoolean(true),
        answer.path("must_be_jvm").asBoolean(false),
        texts(answer.path("stores")),
        texts(answer.path("shown")));
  }

  /**
   * The columns that must be checked beside those that a query reads, so that pruning changes no
   * row: a value that is malformed drops a record, ends the query, or shows the record in the
   * column for such.
   */
  public List<ColumnSpec> checkedBeside(List<ColumnSpec> wanted) {
    boolean isShown = wanted.stream().anyMatch(each -> each.kind() == Kind.CORRUPT);
    if (mode == Mode.PERMISSIVE && !isShown) {
      return List.of();
    }
    return columns.stream()
        .filter(each -> each.kind() == Kind.FIELD && !wanted.contains(each))
        .toList();
  }

  private static List<String> texts(JsonNode array) {
    List<String> found = new ArrayList<>();
    array.forEach(each -> found.add(each.asText()));
    return List.copyOf(found);
  }
}
