package org.logstore.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A scan of the Python source, which says in the plan why Python reads. */
final class PythonScan implements Scan {
  private final Scan scan;
  private final String why;

  PythonScan(Load load, String why) {
    scan = load.python().scan(load.schema(), load.options());
    this.why = why;
  }

  @Override
  public String description() {
    return "logstore (read by Python: " + why + ")";
  }

  @Override
  public StructType readSchema() {
    return scan.readSchema();
  }

  @Override
  public Batch toBatch() {
    return scan.toBatch();
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return scan.toMicroBatchStream(checkpoint);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return scan.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return scan.reportDriverMetrics();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return scan.columnarSupportMode();
  }
}
