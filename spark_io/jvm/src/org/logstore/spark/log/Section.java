package org.logstore.spark.log;

/**
 * What the nodes of a block belong to: a stream, by name and by number, and the closed interval of
 * IDs that is asked for.
 */
record Section(byte[] name, long stream, Id start, Id end) {}
