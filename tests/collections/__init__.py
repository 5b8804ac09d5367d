"""Prevents that a collection, a finaliser or a thread in between changes what a call does."""
