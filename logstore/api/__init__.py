"""What users hold: stores, streams, groups, deliveries, transactions, workers.

Each class checks its arguments, asks the engine for one operation, and gives its answer as values.
It knows no file, no index and no lock.
"""
