"""What streams have beside entries: idempotent IDs, schedules, expiry, settings, retention."""
