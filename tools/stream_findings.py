"""Rules of ``logstore doctor`` about streams and groups: retention, lag, consumers, dead letters.

Invariants: a rule reads only, and a bounded amount of each group; what goes meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from logstore.api import units
from logstore.api.describe import StreamSummary
from logstore.api.info import ConsumerInfo, GroupInfo
from logstore.errors import GroupNotFoundError, StreamNotFoundError
from logstore.tools.durations import told
from logstore.tools.finding import SLOW, SOON, WRONG, Finding, Look
from logstore.tools.output import readable

PENDING_LOOKED_AT = 200  # of each group, the smallest IDs
OVERDUE_ENTRIES = 1000  # above what whole nodes keep longer
GROWS_WITHIN = timedelta(days=1)
NAMES_SHOWN = 3


# -- streams --------------------------------------------------------------------------------------
def streams(look: Look) -> Iterator[Finding]:
    """What is kept too long, and what waits among dead letters."""
    senders = dead_letters(look.streams)
    for each in look.streams:
        if each.name in senders:
            yield from _dead_letters(look, each, senders[each.name])
        else:
            yield from _retention(look, each)


def dead_letters(found: list[StreamSummary]) -> dict[bytes, list[str]]:
    """Streams that groups name for their dead letters, with those groups."""
    senders: dict[bytes, list[str]] = {}
    for each in found:
        for group in each.groups:
            if group.settings.dead_letter is not None:
                name = f"{readable(each.name)}/{readable(group.name)}"
                senders.setdefault(group.settings.dead_letter, []).append(name)
    return senders


def _dead_letters(look: Look, found: StreamSummary, senders: list[str]) -> Iterator[Finding]:
    if found.length:
        waits = units.counted(found.length, "dead letter waits", "dead letters wait")
        yield Finding(
            "dead-letters",
            WRONG,
            readable(found.name),
            f"{waits}, given up by {_listed(senders)}: look at them, then 'logstore dead retry' or "
            "'drop'",
            look.command("dead list", found.name),
        )


def _retention(look: Look, found: StreamSummary) -> Iterator[Finding]:
    settings = found.settings
    last = units.clock(found.last_id.ms)
    grows = last is not None and datetime.now(UTC) - last < GROWS_WITHIN
    if not settings.retains and settings.compact_by is None:
        if grows and found.size_bytes >= look.limits.large_bytes:
            yield Finding(
                "no-retention",
                SOON,
                readable(found.name),
                f"it has {units.size(found.size_bytes)}, was last added to {units.ago(last)}, and "
                "nothing is ever dropped: the disk will be full one day",
                look.command("configure", found.name, "--max-age", "30d"),
            )
        return
    if settings.max_age_ms is not None:
        oldest = datetime.now(UTC) - timedelta(milliseconds=settings.max_age_ms)
        limit = oldest - look.limits.idle
        over = look.store.stream(found.name).count("-", limit) if limit.timestamp() > 0 else 0
        if over >= OVERDUE_ENTRIES:
            yield Finding(
                "retention",
                SOON,
                readable(found.name),
                f"{over:,} entries are older than its max age of "
                f"{told(timedelta(milliseconds=settings.max_age_ms))}: "
                + (
                    "they wait until they are shipped"
                    if settings.keep_until_shipped
                    else "no process that has the store open drops them"
                ),
                look.command("ship" if settings.keep_until_shipped else "retain"),
            )


# -- groups ---------------------------------------------------------------------------------------
def groups(look: Look) -> Iterator[Finding]:
    """Groups that nobody reads, or whose entries stay with who is gone."""
    for each in look.streams:
        for info in each.groups:
            with suppress(GroupNotFoundError, StreamNotFoundError):
                yield from _group(look, each.name, info)


def _group(look: Look, stream: bytes, info: GroupInfo[bytes]) -> Iterator[Finding]:
    group = look.store.stream(stream).group(info.name)
    about = f"{readable(stream)}/{readable(info.name)}"
    consumers = group.consumers()
    away = [who for who in consumers if who.idle >= look.limits.idle]
    if info.lag and len(away) == len(consumers):
        since = min((who.idle for who in consumers), default=None)
        nobody = f"was last read {units.length(since)} ago: start its workers, or destroy it"
        if since is None:
            nobody = "has no consumer, nor needs one if a Spark query keeps its progress there"
        yield Finding(
            "unread",
            SOON if since is None else WRONG,
            about,
            f"it lags by {units.counted(info.lag, 'entry', 'entries')} and {nobody}",
            look.command("groups", stream),
        )
    holders = [who for who in away if who.pending]
    if holders and not (info.settings.redeliver_after_ms and len(away) < len(consumers)):
        yield _left_behind(look, stream, info, holders)
    if info.pending and info.settings.max_deliveries is None:
        most = max(
            (each.delivery_count for each in group.pending_entries(count=PENDING_LOOKED_AT)),
            default=0,
        )
        if most >= look.limits.deliveries:
            dead = readable(stream) + ":dead"
            yield Finding(
                "redelivered",
                WRONG,
                about,
                f"an entry was delivered {most:,} times and never acknowledged, and nothing ends "
                "that: its handler fails each time",
                look.command(
                    "configure", stream, "--group", info.name, "--max-deliveries",
                    str(look.limits.deliveries), "--dead-letter", dead,
                ),
            )  # fmt: skip


def _left_behind(
    look: Look, stream: bytes, info: GroupInfo[bytes], holders: list[ConsumerInfo[bytes]]
) -> Finding:
    pending = sum(who.pending for who in holders)
    names = _listed([readable(who.name) for who in holders])
    idle = told(look.limits.idle)
    what = (
        f"{units.counted(pending, 'entry is', 'entries are')} pending with "
        f"{units.counted(len(holders), 'consumer')} that went away ({names}, at least "
        f"{units.length(min(who.idle for who in holders))} ago), and "
    )
    mend = look.command("configure", stream, "--group", info.name, "--redeliver-after", idle)
    if info.settings.redeliver_after_ms:
        what += "nobody reads who would take them over: start its workers"
        mend = look.command("pending", stream, info.name)
    else:
        what += "go to nobody else"
    about = f"{readable(stream)}/{readable(info.name)}"
    return Finding("left-behind", WRONG, about, what, mend)


def _listed(texts: list[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return ", ".join(texts[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


# -- between two looks ----------------------------------------------------------------------------
def growing(
    look: Look, before: list[StreamSummary], after: list[StreamSummary], span: timedelta
) -> Iterator[Finding]:
    """Groups that are read, and fall behind all the same."""
    known = {
        (each.name, group.name): (group.lag, group.entries_read)
        for each in before
        for group in each.groups
    }
    for each in after:
        for group in each.groups:
            then, read = known.get((each.name, group.name), (None, None))
            if then is None or group.lag is None or group.lag <= then or not then:
                continue
            done = (group.entries_read or 0) - (read or 0)
            yield Finding(
                "lag-grows",
                SLOW,
                f"{readable(each.name)}/{readable(group.name)}",
                f"its lag grew from {then:,} to {group.lag:,} entries within {told(span)}, while "
                f"{done:,} were read: start more workers, or read larger batches",
                look.command("groups", each.name),
            )


RULES = (streams, groups)
