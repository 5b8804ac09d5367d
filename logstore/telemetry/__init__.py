"""What a store tells of itself to those who watch it: Prometheus and OpenTelemetry."""
