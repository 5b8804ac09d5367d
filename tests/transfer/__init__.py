"""Streams from and to files and servers."""
