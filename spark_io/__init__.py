"""The Spark source: reads the stored history in parallel, straight from the segments."""
