"""Several processes on one store, one step at a time, in an order that a seed chooses."""
