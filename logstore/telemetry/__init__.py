"""The numbers of a store for monitoring: Prometheus and OpenTelemetry."""
