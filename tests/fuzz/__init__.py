"""Fuzzing of what reads bytes of strangers: requests, DUMP payloads, RDB files, nodes, LZF.

A harness is a module with ``SEEDS``, inputs that are sound, and ``one(data)``, which raises where
an input shows a defect: an error of the wrong kind, an answer of the compiled codec that is not the
pure one's, a piece-wise reading that differs from one at once, a round trip that loses something.

Each runs in two ways. Always, under pytest: the seeds, the inputs that found something once
(``tests/golden/fuzz``), and mutations of both, the same ones each time. And guided by coverage, for
as long as wanted, where the package atheris is installed: ``python -m tests.fuzz TARGET --seconds
600``. A harness imports neither.
"""
