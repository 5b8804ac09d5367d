package org.logstore.spark.columns;

import java.io.Serializable;
import org.apache.spark.sql.types.DataType;

/**
 * A column that is read, as the planner decided it.
 *
 * @param name the column's name in Spark
 * @param kind what it is
 * @param field the name of the field, in UTF-8; empty unless the kind is FIELD
 * @param type Spark's type of it
 */
public record ColumnSpec(String name, Kind kind, byte[] field, DataType type)
    implements Serializable {
  /** What a column is. */
  public enum Kind {
    /** A field of the entries. */
    FIELD,
    STREAM,
    ID,
    MS,
    SEQ,
    TS,
    FIELDS,
    ID_KEY,
    PAIRS,
    /** The whole entry as JSON, where a value of it is malformed. */
    CORRUPT,
    /** The store that the row is from. */
    STORE,
    /** The segment that the node is in; null if it is in none. */
    SEGMENT,
    /** Where in its segment the node begins; null if it is in none. */
    OFFSET
  }
}
