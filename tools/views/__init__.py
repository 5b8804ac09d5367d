"""Commands that look at a store and change nothing: what it holds, where, and what is wrong."""
