"""The index by itself: keys and values, and what one transaction sees."""
