package org.logstore.spark.pushed;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.StandardValues;
import org.logstore.spark.log.Id;
import org.logstore.spark.log.Ids;
import org.logstore.spark.log.Wanted;

/**
 * Which entries have which values of a column that tells of their ID or stream.
 *
 * <p>Invariant: what is given is exactly what Spark's comparison gives; null: that is not known.
 */
final class IdValues {
  private static final BigDecimal MICROS = BigDecimal.valueOf(1000); // of a millisecond
  private static final int KEY_BYTES = 16;

  private final ColumnSpec column;
  private final Ids values;

  private IdValues(ColumnSpec column, Ids values) {
    this.column = column;
    this.values = values;
  }

  /** Of a column; null of one that tells of neither. */
  static IdValues of(ColumnSpec column) {
    return switch (column.kind()) {
      case STREAM, ID, ID_KEY -> new IdValues(column, Ids.ALL);
      case MS, TS ->
          new IdValues(column, Ids.of(Id.LEAST, new Id(StandardValues.msMost(column), -1)));
      default -> null;
    };
  }

  /** The entries for which the column is not null. */
  Wanted values() {
    return Wanted.of(values);
  }

  /** The entries for which it is. */
  Wanted nulls() {
    return Wanted.of(values.not());
  }

  /** The entries whose value is one of some, of which those that are null do not count. */
  Wanted anyOf(List<Literal<?>> literals) {
    List<Ids> ids = new ArrayList<>();
    Set<String> names = new TreeSet<>();
    for (Literal<?> each : literals) {
      if (each.value() == null) {
        continue;
      }
      if (column.kind() == ColumnSpec.Kind.STREAM) {
        UTF8String name = text(each);
        if (name == null) {
          return null;
        }
        names.addAll(names(name));
      } else {
        Ids found = compare("=", each);
        if (found == null) {
          return null;
        }
        ids.add(found);
      }
    }
    return names.isEmpty() ? Wanted.of(Ids.anyOf(ids)) : Wanted.ofStreams(names);
  }

  /** The entries whose value a comparison with one that is not null is true for. */
  Wanted compared(String sign, Literal<?> literal) {
    if (column.kind() == ColumnSpec.Kind.STREAM) {
      UTF8String name = text(literal);
      if (name == null || !(sign.equals("=") || sign.equals("<>"))) {
        return null;
      }
      Wanted equal = Wanted.ofStreams(names(name));
      return sign.equals("=") ? equal : equal.not();
    }
    Ids found = compare(sign, literal);
    return found == null ? null : Wanted.of(found);
  }

  private Ids compare(String sign, Literal<?> literal) {
    return switch (sign) {
      case "=", "<", "<=" -> least(sign, literal);
      case "<>" -> others(least("=", literal));
      case ">=" -> others(least("<", literal));
      case ">" -> others(least("<=", literal));
      default -> null;
    };
  }

  private Ids others(Ids found) {
    return found == null ? null : values.and(found.not());
  }

  /** The IDs for which = < or <= is true. */
  private Ids least(String sign, Literal<?> literal) {
    return switch (column.kind()) {
      case ID -> sign.equals("=") ? ofId(literal) : null;
      case ID_KEY -> literal.value() instanceof byte[] key ? ofKey(sign, key) : null;
      default -> ofMs(sign, literal);
    };
  }

  /** Times are microseconds; a column of type bigint or decimal has the number itself. */
  private Ids ofMs(String sign, Literal<?> literal) {
    BigDecimal value;
    if (!isOfType(literal.dataType())) {
      return null;
    } else if (literal.value() instanceof Long number) {
      value = BigDecimal.valueOf(number);
    } else if (literal.value() instanceof Decimal number) {
      value = number.toJavaBigDecimal();
    } else {
      return null;
    }
    if (column.kind() == ColumnSpec.Kind.TS) {
      value = value.divide(MICROS); // exact: it has three digits more
    }
    BigInteger floor = value.setScale(0, RoundingMode.FLOOR).toBigInteger();
    boolean isWhole = value.compareTo(new BigDecimal(floor)) == 0;
    BigInteger least = BigInteger.ZERO;
    BigInteger most = floor;
    if (sign.equals("=")) {
      if (!isWhole) {
        return Ids.NONE;
      }
      least = floor;
    } else if (sign.equals("<") && isWhole) {
      most = floor.subtract(BigInteger.ONE);
    }
    BigInteger end = new BigInteger(Long.toUnsignedString(StandardValues.msMost(column)));
    least = least.max(BigInteger.ZERO);
    most = most.min(end);
    if (least.compareTo(most) > 0) {
      return Ids.NONE;
    }
    return Ids.of(new Id(least.longValue(), 0), new Id(most.longValue(), -1));
  }

  /** Decimals are compared whatever their scale; else the types must be the same. */
  private boolean isOfType(DataType type) {
    return type.equals(column.type())
        || type instanceof DecimalType && column.type() instanceof DecimalType;
  }

  /** The ID of a text, which is none unless it is the one that the column shows. */
  private Ids ofId(Literal<?> literal) {
    UTF8String text = text(literal);
    if (text == null) {
      return null;
    }
    String[] parts = text.toString().split("-", -1);
    if (parts.length == 2) {
      try {
        Id found = new Id(Long.parseUnsignedLong(parts[0]), Long.parseUnsignedLong(parts[1]));
        if (UTF8String.fromString(found.toString()).equals(text)) {
          return Ids.of(found, found);
        }
      } catch (NumberFormatException none) {
        // it is no ID
      }
    }
    return Ids.NONE;
  }

  /** Bytes are compared as such, and of two that begin alike the longer ones are larger. */
  private static Ids ofKey(String sign, byte[] key) {
    Id cut = idOf(Arrays.copyOf(key, KEY_BYTES));
    if (sign.equals("=")) {
      return key.length == KEY_BYTES ? Ids.of(cut, cut) : Ids.NONE;
    }
    boolean withCut = key.length > KEY_BYTES || key.length == KEY_BYTES && sign.equals("<=");
    Ids upto = Ids.of(Id.LEAST, cut);
    return withCut ? upto : upto.and(Ids.of(cut, Id.MOST).not());
  }

  private static Id idOf(byte[] key) {
    BigInteger number = new BigInteger(1, key);
    return new Id(number.shiftRight(64).longValue(), number.longValue());
  }

  private UTF8String text(Literal<?> literal) {
    boolean isText = literal.dataType().equals(column.type());
    return isText && literal.value() instanceof UTF8String found ? found : null;
  }

  /** The name that a text is; none if it is no UTF-8, which the column never is. */
  private static Set<String> names(UTF8String text) {
    String found = text.toString();
    return UTF8String.fromString(found).equals(text) ? Set.of(found) : Set.of();
  }
}
