package org.logstore.spark;

import java.util.List;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.logstore.spark.columns.ColumnSpec;
import org.logstore.spark.columns.ColumnSpec.Kind;

/**
 * A column that tells where in the log the node of an entry lies.
 *
 * <p>It is none of a load's schema: a query has it that names it, unless a column of the schema has
 * its name. It is null for an entry of a node that the plan holds a copy of.
 */
record PlaceColumn(String name, Kind kind, String comment) implements MetadataColumn {
  /** All there are. */
  static final List<PlaceColumn> ALL =
      List.of(
          new PlaceColumn("_segment", Kind.SEGMENT, "the number of the segment"),
          new PlaceColumn("_offset", Kind.OFFSET, "where in the segment the node's frame begins"));

  @Override
  public DataType dataType() {
    return DataTypes.LongType;
  }

  /** How it is read. */
  ColumnSpec spec() {
    return new ColumnSpec(name, kind, new byte[0], dataType());
  }

  /** As a column of a scan. */
  StructField field() {
    return DataTypes.createStructField(name, dataType(), true);
  }
}
