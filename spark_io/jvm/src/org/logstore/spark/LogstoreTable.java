package org.logstore.spark;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Streams of stores as a table.
 *
 * <p>Invariant: all queries over one load read the same moment, that of the first one, as with the
 * Python source; so its plan is kept here.
 */
final class LogstoreTable implements SupportsRead, SupportsWrite, SupportsMetadataColumns {
  private final StructType schema;
  private final String whyPython;
  private final Map<Map<String, String>, Load> loads = new HashMap<>();

  LogstoreTable(StructType schema, String whyPython) {
    this.schema = schema;
    this.whyPython = whyPython;
  }

  @Override
  public String name() {
    return LogstoreSource.NAME;
  }

  @Override
  @SuppressWarnings("deprecation") // the default of what takes its place calls it
  public StructType schema() {
    return schema;
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return PlaceColumn.ALL.toArray(MetadataColumn[]::new);
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Load load;
    synchronized (loads) {
      load =
          loads.computeIfAbsent(
              options.asCaseSensitiveMap(), given -> new Load(schema, options, whyPython));
    }
    return new LogstoreScanBuilder(load);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new PythonSource().writeBuilder(schema, info);
  }
}
