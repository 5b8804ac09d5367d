"""Crash states: workloads recorded once, cut at every operation, the disk as each cut may leave it.

``recording`` writes down every file-system operation of a run; ``disk`` replays them and says what
a crash may leave; ``explore`` walks the cuts; ``judge`` opens what is left and holds it against
what was acknowledged, which ``model`` works out beside the store; ``table`` counts and prints.
"""
