"""What a store tells of itself, for people and for monitoring.

Numbers for Prometheus and OpenTelemetry, rates between two looks, lists of streams, what takes the
space, and what the doctor finds. Commands and the web view share it.
"""
