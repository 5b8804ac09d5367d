"""The compiled module of the lane, where it was built. It is chosen once, when this is imported."""

from __future__ import annotations

from logstore.engine.reading.reader_loading import native_module

native_or_none = native_module("logstore.engine.lane.native")
