"""Tests of the reader in the JVM (spark_io/jvm) without a Spark session."""
