package org.logstore.spark;

import org.logstore.spark.log.Selection;
import org.logstore.spark.log.Split;

/**
 * What one task reads.
 *
 * @param shown the store, without the secrets that a URI may have
 * @param nodes how many are looked at
 * @param entries an upper limit of them
 * @param certain how many there are, at least
 * @param sizeBytes an upper limit of what is read of the log
 */
record Part(
    Split split,
    String shown,
    Selection selection,
    long nodes,
    long entries,
    long certain,
    long sizeBytes) {}
