"""Consumer groups against the peers: both do the same, every answer is compared."""
