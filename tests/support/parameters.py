"""Parameters of a call as users may give them: the options of a TypedDict each by its name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from logstore.api.arguments import AddOptions, RowOptions
from logstore.api.configuring import GroupOptions, StreamOptions
from logstore.api.group import ClaimOptions, ConsumeOptions
from logstore.api.scheduling import ScheduleOptions
from logstore.api.store import OpenOptions
from logstore.jobs.queue import TaskOptions

OPTIONS: dict[str, Any] = {
    each.__name__: each
    for each in (
        AddOptions,
        TaskOptions,
        RowOptions,
        OpenOptions,
        ScheduleOptions,
        ConsumeOptions,
        ClaimOptions,
        StreamOptions,
        GroupOptions,
        TaskOptions,
    )
}


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters by name, without ``self``; ``**options: Unpack[X]`` gives the keys of X."""
    found: dict[str, Parameter] = {}
    for name, each in inspect.signature(function).parameters.items():
        unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if name == "self":
            continue
        if unpacked is None:
            found[name] = each
            continue
        for key, kind in OPTIONS[unpacked[1]].__annotations__.items():
            text = getattr(kind, "__forward_arg__", kind)
            found[key] = Parameter(key, Parameter.KEYWORD_ONLY, default=None, annotation=text)
    return found
