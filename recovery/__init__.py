"""Recovery: numbered passes from a directory to an engine, rebuild, check, report.

Stands above the engine and calls it; one code path for a dead writer, a dirty open and a rebuild.
"""
