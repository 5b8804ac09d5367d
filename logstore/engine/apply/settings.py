"""Applying frames of settings to the index: what ``apply`` does with their kind.

Invariants: physical only, as all of ``apply``; a frame counts only if it stands behind the position
of its stream's, or its group's, record. Settings end with what they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logstore.log.settingframe import Setting
from logstore.settings import GroupSettings, StreamSettings, restored

if TYPE_CHECKING:
    from logstore.engine.txn.view import TxnView


def _setting(state: TxnView, at: int, _: int, body: Setting) -> None:
    record = state.record(body.stream)
    if record is None:
        return
    if not body.group:
        if record.position < at:
            record.position = at
            state.touch(record)
            state.settings.put_stream(body.stream, restored(StreamSettings, body.values))
        return
    group = state.groups.by_number(body.group)
    if group is not None and group.position < at:
        group.position = at
        state.groups.touch(group)
        state.settings.put_group(body.group, restored(GroupSettings, body.values))
        state.woken.add(record.name)  # who waits may be handed other entries now


APPLY: dict[type, Callable[[TxnView, int, int, Any], None]] = {Setting: _setting}
