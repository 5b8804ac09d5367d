"""Tests of the benchmarks' harness; none of them judges a time."""
