package org.logstore.spark;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A scan of all columns, of which Spark has not said yet whether it is a batch or a stream. */
final class UnprunedScan implements Scan {
  private final Load load;

  UnprunedScan(Load load) {
    this.load = load;
  }

  @Override
  public StructType readSchema() {
    return load.schema();
  }

  @Override
  public String description() {
    return "logstore (stream, read by Python)";
  }

  @Override
  public Batch toBatch() {
    LogstoreScanBuilder builder = new LogstoreScanBuilder(load);
    builder.pruneColumns(load.schema());
    return builder.build().toBatch();
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new PythonSource().scan(load.schema(), load.options()).toMicroBatchStream(checkpoint);
  }
}
