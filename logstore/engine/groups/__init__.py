"""What an operation on a consumer group decides: delivering, acknowledging, claiming."""
