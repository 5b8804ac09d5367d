"""A store in a browser: streams, entries by time, groups and their lag, dead letters, segments.

The command ``logstore web`` runs it; the packages come with the extra ``web``.
"""
