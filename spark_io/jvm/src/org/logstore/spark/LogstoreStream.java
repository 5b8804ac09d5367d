package org.logstore.spark;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.logstore.spark.plan.PlannedStream;

/**
 * The batches of a streaming query, read by the JVM.
 *
 * <p>Spark calls it from the thread of the query alone.
 */
final class LogstoreStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final LogstoreScan scan;
  private final PlannedStream planned;

  LogstoreStream(LogstoreScan scan, PlannedStream planned) {
    this.scan = scan;
    this.planned = planned;
  }

  @Override
  public Offset initialOffset() {
    return new LogstoreOffset(planned.initial());
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    if (planned.maxRows() > 0) {
      return ReadLimit.maxRows(planned.maxRows());
    }
    return planned.maxBytes() > 0
        ? ReadLimit.maxBytes(planned.maxBytes())
        : ReadLimit.allAvailable();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    planned.prepareForAvailableNow();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is to be called");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return new LogstoreOffset(planned.latest(start.json(), !(limit instanceof ReadAllAvailable)));
  }

  @Override
  public Offset reportLatestOffset() {
    return planned.ends() == null ? null : new LogstoreOffset(planned.ends());
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new LogstoreOffset(json);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return SplitPartition.of(planned.splits(start.json(), end.json()));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return scan.streamReaderFactory();
  }

  @Override
  public void commit(Offset end) {
    planned.commit(end.json());
  }

  @Override
  public void stop() {
    planned.stop();
  }
}
