"""Attacks on a served store, each beside Redis in the same run: see case.py for how one is written.

``python -m tests.wire.attacks`` runs all of them at full size and prints the table of
docs/security.md; with pytest they are small.
"""
