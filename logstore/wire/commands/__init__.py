"""The commands, one module a family; each module has a list ``COMMANDS``."""

from __future__ import annotations

from logstore.wire.commands import (
    acl,
    adding,
    catalogue,
    clients,
    config,
    connection,
    deleting,
    dumping,
    groupreads,
    groups,
    info,
    keys,
    lifetimes,
    monitoring,
    pending,
    reading,
    server,
    transactions,
    trimming,
)
from logstore.wire.table import Command

FAMILIES = (
    adding, reading, deleting, trimming, groups, groupreads, pending, info, keys, lifetimes,
    dumping, connection, acl, clients, transactions, catalogue, config, server,
    monitoring,
)  # fmt: skip


def commands_of(profile: str) -> list[Command]:
    """The commands that a profile has."""
    return [
        command
        for family in FAMILIES
        for command in family.COMMANDS
        if command.levels is None or profile in command.levels
    ]
