package org.logstore.spark;

import org.apache.spark.sql.connector.read.InputPartition;
import org.logstore.spark.log.Split;

/**
 * What one task reads, as Spark carries it.
 *
 * @param shown the store, without the secrets that a URI may have
 */
record SplitPartition(Split split, String shown) implements InputPartition {}
