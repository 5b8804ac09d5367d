"""Plans, splits, pins and Arrow, without Spark."""
