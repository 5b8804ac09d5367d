"""The prototype of a fast lane for plain adds, and what counts it: see README.md beside this."""
