"""All commands of a profile as a table, and a service with them: what serves a store is made here.

The commands know the table and the service, so what knows all commands stands above them. Knows no
connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from logstore.api.store import Store
from logstore.errors import OptionError
from logstore.options import Profile
from logstore.wire.acl import RuleError
from logstore.wire.commands import (
    acl_commands,
    add_commands,
    clients,
    command,
    connection_commands,
    copying,
    expire_commands,
    groupreads,
    key_commands,
    monitoring,
    pending,
    read_commands,
    removing,
    server_commands,
    transactions,
    xgroup,
    xinfo,
)
from logstore.wire.service import Service
from logstore.wire.table import Table
from logstore.wire.users import Users

FAMILIES = (
    add_commands,
    read_commands,
    removing,
    xgroup,
    groupreads,
    pending,
    xinfo,
    key_commands,
    expire_commands,
    copying,
    connection_commands,
    acl_commands,
    clients,
    transactions,
    command,
    server_commands,
    monitoring,
)


def table_of(profile: Profile) -> Table:
    """The commands that a profile has. OptionError if there is no such profile."""
    if profile not in get_args(Profile):
        raise OptionError(f"compat must be one of {', '.join(get_args(Profile))}: {profile!r}")
    every = [command for family in FAMILIES for command in family.COMMANDS]
    return Table(
        profile, [known for known in every if known.levels is None or profile in known.levels]
    )


def users_of(profile: Profile, password: bytes = b"", path: Path | None = None) -> Users:
    """The users of a server: those of an ACL file, and the default one. OptionError.

    With a password the default user needs it, unless the file says what that user is.
    """
    users = Users(table_of(profile), password)
    if path is not None:
        try:
            users.load_file(path)
        except RuleError as exc:
            raise OptionError(f"no user of {path} is taken: {exc}") from None
    return users


def service_of(
    store: Store[bytes],
    profile: Profile = "redis-8.10",
    *,
    password: bytes = b"",
    allow_flush: bool = False,
    others: Mapping[int, Store[bytes]] | None = None,
) -> Service:
    """A service of a store whose users are in no file: the default one, with this password."""
    return Service(store, users_of(profile, password), allow_flush=allow_flush, others=others)
