"""Tests of the reader in the JVM: what its parts do, against the Python that they follow."""
