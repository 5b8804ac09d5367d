"""Behaviour of the public operations, one file a behaviour, and real servers as their judges."""
