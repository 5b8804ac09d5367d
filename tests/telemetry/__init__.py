"""What a store tells of itself to Prometheus and OpenTelemetry, read by their own libraries."""
