"""Mutation check: the product is broken at one place at a time, and the tests must notice."""
