package org.logstore.spark.columns;

import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.logstore.spark.LogstoreException;

/** Which column a type of Spark has, and what Arrow calls it. */
final class Columns {
  private Columns() {}

  /** An empty column of a type. */
  static Column of(DataType type) {
    if (type instanceof StringType || type instanceof BinaryType) {
      return new TextColumn(type);
    }
    if (type instanceof DoubleType || type instanceof FloatType) {
      return new DoubleColumn(type);
    }
    if (type instanceof MapType || type instanceof ArrayType) {
      return new PairsColumn(type);
    }
    if (type instanceof DecimalType decimal) {
      DecimalText reader = new DecimalText(decimal.precision(), decimal.scale());
      return reader.isLong() ? new LongColumn(type, reader) : new DecimalColumn(type, reader);
    }
    return new LongColumn(type, reader(type));
  }

  private static LongText reader(DataType type) {
    if (type instanceof LongType) {
      return new WholeText(64);
    }
    if (type instanceof IntegerType) {
      return new WholeText(32);
    }
    if (type instanceof ShortType) {
      return new WholeText(16);
    }
    if (type instanceof ByteType) {
      return new WholeText(8);
    }
    if (type instanceof BooleanType) {
      return new BooleanText();
    }
    if (type instanceof TimestampType) {
      return new TimeText(TimeText.Kind.ZONED);
    }
    if (type instanceof TimestampNTZType) {
      return new TimeText(TimeText.Kind.PLAIN);
    }
    if (type instanceof DateType) {
      return new TimeText(TimeText.Kind.DATE);
    }
    throw new LogstoreException("OptionError", "a field cannot be read as " + type.simpleString());
  }

  /** The name of a type in errors, which is Arrow's. */
  static String shown(DataType type) {
    if (type instanceof DecimalType decimal) {
      return "decimal128(" + decimal.precision() + ", " + decimal.scale() + ")";
    }
    return switch (type.simpleString()) {
      case "tinyint" -> "int8";
      case "smallint" -> "int16";
      case "int" -> "int32";
      case "bigint" -> "int64";
      case "boolean" -> "bool";
      case "date" -> "date32[day]";
      case "timestamp" -> "timestamp[us, tz=UTC]";
      case "timestamp_ntz" -> "timestamp[us]";
      default -> type.simpleString();
    };
  }
}
