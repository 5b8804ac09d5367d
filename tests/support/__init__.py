"""What tests share: the one door to what is private to the engine."""
