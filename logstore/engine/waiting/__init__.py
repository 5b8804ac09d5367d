"""Readers that wait: their queue, what they are handed, and how they sleep and wake."""
