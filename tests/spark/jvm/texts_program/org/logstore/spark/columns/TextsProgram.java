package org.logstore.spark.columns;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.logstore.spark.LogstoreException;

/**
 * Answers what texts are as types, and which rows entries become, as long as it is asked.
 *
 * <p>A request is a letter and its data; see texts_process.py, which asks.
 */
public final class TextsProgram {
  private static final ObjectMapper JSON = new ObjectMapper();

  private TextsProgram() {}

  /** Answers until its input ends. */
  public static void main(String[] args) throws IOException {
    DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
    DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
    for (int kind = in.read(); kind >= 0; kind = in.read()) {
      byte[] answer =
          kind == 'T'
              ? texts(in)
              : JSON.writeValueAsBytes(rows(JSON.readTree(in.readNBytes(in.readInt()))));
      out.writeInt(answer.length);
      out.write(answer);
      out.flush();
    }
  }

  /** Of each text whether it is null (0), a value (1), or malformed (2), and the value. */
  private static byte[] texts(DataInputStream in) throws IOException {
    List<String> answers = new ArrayList<>();
    DataType type = DataType.fromDDL(in.readUTF());
    Column column = Columns.of(type);
    column.grow(1);
    for (int left = in.readInt(); left > 0; left--) {
      byte[] text = in.readNBytes(in.readInt());
      String found = answer(column, type, text, false);
      Long number = number(text);
      if (number != null && !answer(column, type, text, true).equals(found)) {
        found = "the number " + number + " is not what its text is";
      }
      answers.add(found);
    }
    return JSON.writeValueAsBytes(answers);
  }

  private static String answer(Column column, DataType type, byte[] text, boolean asNumber) {
    byte[] within = new byte[text.length + 7]; // what stands around a text is not looked at
    Arrays.fill(within, (byte) '1');
    System.arraycopy(text, 0, within, 3, text.length);
    column.clear(1, 1);
    if (asNumber) {
      column.number(0, number(text));
    } else {
      column.text(0, within, 3, text.length);
    }
    int state = column.states[0];
    ColumnarBatch batch = new ColumnarBatch(new Column[] {column}, 1);
    return state + (state == Column.VALUE ? value(batch.getRow(0), 0, type).asText() : "");
  }

  /** The number whose decimal digits a text is. */
  private static Long number(byte[] text) {
    try {
      String found = new String(text, StandardCharsets.ISO_8859_1);
      long number = Long.parseLong(found);
      return Long.toString(number).equals(found) ? number : null;
    } catch (NumberFormatException error) {
      return null;
    }
  }

  private static JsonNode rows(JsonNode asked) {
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode batches = answer.putArray("batches");
    ColumnSpec[] specs = specs(asked.get("columns"));
    Rows rows =
        new Rows(
            specs,
            specs(asked.get("checked")),
            Mode.valueOf(asked.get("mode").asText()),
            asked.get("store").asText());
    int start = 0; // of the node
    try {
      for (JsonNode step : asked.get("steps")) {
        switch (step.get(0).asText()) {
          case "stream" -> rows.stream(bytes(step.get(1)));
          case "node" -> start = rows.rows();
          case "back" -> rows.backTo(start);
          case "take" -> batches.add(batch(rows.take(), specs));
          default -> entry(rows, step);
        }
      }
    } catch (LogstoreException error) {
      answer.put("error", error.getMessage());
    }
    return answer;
  }

  private static ColumnSpec[] specs(JsonNode asked) {
    ColumnSpec[] found = new ColumnSpec[asked.size()];
    for (int i = 0; i < found.length; i++) {
      JsonNode one = asked.get(i);
      found[i] =
          new ColumnSpec(
              one.get(0).asText(),
              ColumnSpec.Kind.valueOf(one.get(1).asText()),
              bytes(one.get(2)),
              DataType.fromDDL(one.get(3).asText()));
    }
    return found;
  }

  private static byte[] bytes(JsonNode hex) {
    return HexFormat.of().parseHex(hex.asText());
  }

  /** Puts an entry, or with the step "half" all of it but its end. */
  private static void entry(Rows rows, JsonNode step) {
    long ms = new BigInteger(step.get(1).asText()).longValue();
    rows.begin(ms, new BigInteger(step.get(2).asText()).longValue(), 0, 0);
    for (JsonNode pair : step.get(3)) {
      byte[] name = bytes(pair.get(0));
      if (rows.wantsPairs()) {
        rows.pair(name, 0, name.length);
      }
      int field = rows.field(name, 0, name.length);
      byte[] value = bytes(pair.get(1));
      Long number = number(value);
      if (number == null) {
        rows.text(field, value, 0, value.length);
      } else {
        rows.number(field, number);
      }
    }
    if (step.get(0).asText().equals("entry")) {
      rows.end();
    }
  }

  private static ArrayNode batch(ColumnarBatch batch, ColumnSpec[] specs) {
    ArrayNode found = JSON.createArrayNode();
    for (int row = 0; row < batch.numRows(); row++) {
      InternalRow one = batch.getRow(row);
      ArrayNode values = found.addArray();
      for (int i = 0; i < specs.length; i++) {
        if (one.isNullAt(i)) {
          values.addNull();
        } else {
          values.add(value(one, i, specs[i].type()));
        }
      }
    }
    return found;
  }

  private static JsonNode value(SpecializedGetters row, int at, DataType type) {
    if (type instanceof MapType map) {
      ColumnarMap found = (ColumnarMap) row.getMap(at);
      ArrayNode pairs = JSON.createArrayNode();
      for (int i = 0; i < found.numElements(); i++) {
        ArrayNode pair = pairs.addArray();
        pair.add(value(found.keyArray(), i, map.keyType()));
        pair.add(value(found.valueArray(), i, map.valueType()));
      }
      return pairs;
    }
    if (type instanceof ArrayType array) {
      ColumnarArray found = (ColumnarArray) row.getArray(at);
      var struct = (org.apache.spark.sql.types.StructType) array.elementType();
      ArrayNode pairs = JSON.createArrayNode();
      for (int i = 0; i < found.numElements(); i++) {
        ArrayNode pair = pairs.addArray();
        pair.add(value(found.getStruct(i, 2), 0, struct.apply(0).dataType()));
        pair.add(value(found.getStruct(i, 2), 1, struct.apply(1).dataType()));
      }
      return pairs;
    }
    return JSON.getNodeFactory().textNode(plain(row, at, type));
  }

  private static String plain(SpecializedGetters row, int at, DataType type) {
    if (type instanceof StringType) {
      return row.getUTF8String(at).toString();
    }
    if (type instanceof BinaryType) {
      return HexFormat.of().formatHex(row.getBinary(at));
    }
    if (type instanceof DoubleType) {
      return Long.toString(Double.doubleToRawLongBits(row.getDouble(at)));
    }
    if (type instanceof FloatType) {
      return Integer.toString(Float.floatToRawIntBits(row.getFloat(at)));
    }
    if (type instanceof DecimalType decimal) {
      return row.getDecimal(at, decimal.precision(), decimal.scale())
          .toJavaBigDecimal()
          .unscaledValue()
          .toString();
    }
    return switch (type.simpleString()) {
      case "boolean" -> Boolean.toString(row.getBoolean(at));
      case "tinyint" -> Byte.toString(row.getByte(at));
      case "smallint" -> Short.toString(row.getShort(at));
      case "int", "date" -> Integer.toString(row.getInt(at));
      default -> Long.toString(row.getLong(at));
    };
  }
}
