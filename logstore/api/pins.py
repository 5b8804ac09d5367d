"""What users see of pins: which there are, how much they keep, and giving them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from logstore.api.info import PinInfo
from logstore.engine.runtime import pins
from logstore.engine.runtime.engine import Engine
from logstore.errors import OptionError, ReadOnlyError
from logstore.log.pinfile import Pin


def living_pins(engine: Engine) -> list[Pin]:
    """The pins that hold; what is left of others goes, if this handle may write."""
    now_ms, clean = engine.clock.now_ms(), not engine.options.readonly
    return pins.living(engine.fs, engine.path, now_ms, clean=clean)


def pin_counts(engine: Engine) -> dict[str, int]:
    """How many pins there are, what they keep, when the oldest was made (unix ms)."""
    held = living_pins(engine)
    return {
        "pins": len(held),
        "pinned_bytes": pins.held_bytes(engine.fs, engine.path, held),
        "oldest_pin_ms": min((pin.made_ms for pin in held), default=0),
    }


def pin_infos(engine: Engine) -> list[PinInfo]:
    """The pins that hold, the oldest first."""
    fs, path = engine.fs, engine.path
    found = []
    for pin in living_pins(engine):
        both = pins.held_bytes(fs, path, [pin])
        alone = pins.held_bytes(fs, path, [pin._replace(segments=frozenset())])
        found.append(PinInfo(
            pin.id, pin.purpose, pin.host, pin.pid,
            datetime.fromtimestamp(pin.made_ms / 1000, UTC) if pin.made_ms else None,
            datetime.fromtimestamp(pin.expires_ms / 1000, UTC),
            None if pin.segments is None else len(pin.segments), both - alone, alone,
        ))  # fmt: skip
    return found


def release_pins(engine: Engine, ids: Sequence[str]) -> int:
    """Give pins back, all of them if none is named; how many. OptionError if one is not there."""
    if engine.options.readonly:
        raise ReadOnlyError("pins cannot be given back through a store opened with readonly=True")
    held = {pin.id for pin in living_pins(engine)}
    for each in ids:
        if each not in held:
            raise OptionError(f"there is no pin {each!r}; see store.pins()")
    for each in ids or held:
        pins.release(engine.fs, engine.path, each)
    return len(ids or held)
