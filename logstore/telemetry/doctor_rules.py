"""The rules of ``logstore doctor``: about a store as a whole, about streams, about groups.

Invariant: a rule changes nothing, and finds nothing in a store that is as it should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from logstore.api import showing
from logstore.api.info import ConsumerInfo, GroupInfo, StreamSummary, dead_letter_streams
from logstore.api.opening import opened_of
from logstore.api.showing import readable, short_length
from logstore.engine.runtime import disk_space
from logstore.engine.shm.commit_words import Wake
from logstore.errors import GroupNotFoundError, StreamNotFoundError
from logstore.log import file_names as names
from logstore.log.pinfile import Pin
from logstore.recovery import index_validity
from logstore.telemetry.doctor_findings import LEVEL_OF, SOON, Examined, Finding


def finding(
    check: str, what: str, command: str = "", *, about: str = "", level: str = ""
) -> Finding:
    """A finding, with the level of its rule."""
    return Finding(check, level or LEVEL_OF[check], about, what, command)


def group_name(stream: bytes, group: bytes) -> str:
    """A group as stream/group."""
    return f"{readable(stream)}/{readable(group)}"


# -- the store ------------------------------------------------------------------------------------
def damage(examined: Examined) -> Iterator[Finding]:
    """Damaged bytes, and the entries that are lost with them."""
    recovered = examined.store.recovery
    if recovered["damage"] or recovered["gone"]:
        first = recovered["damage"][0] if recovered["damage"] else recovered["gone"][0]
        places = showing.counted(len(recovered["damage"]), "damaged place")
        yield finding(
            "damage",
            f"the log has {places}, the first in segment {first['segment']}: {first['why']}; what "
            "stands beside it can be read",
            examined.command("check"),
        )


def failed_sync(examined: Examined) -> Iterator[Finding]:
    """The disk refused to make something durable."""
    engine = opened_of(examined.store).engine()
    if Wake.last_failure(engine.fs, examined.path / names.WAKE):
        yield finding(
            "failed-sync",
            "a sync failed, so nobody knows what the disk has, and nothing more is acknowledged: "
            "close the store in every process, and look at the disk (dmesg)",
            examined.command("recover"),
        )


def space(examined: Examined) -> Iterator[Finding]:
    """Too little room to go on, or to compact."""
    found = examined.usage
    engine = opened_of(examined.store).engine()
    used_up = bool(examined.streams) and not engine.fs.exists(examined.path / names.RESERVE)
    command = examined.command("compact") if examined.info.reclaimable_bytes else ""
    if used_up:
        yield finding(
            "full",
            "the disk was full, and the space that the store sets aside is used up: adds are "
            "refused until there is room again",
            command,
        )
    elif disk_space.is_full(found.free_bytes, found.disk_bytes):
        yield finding(
            "full",
            f"the disk is full, {showing.size(found.free_bytes)} are free: adds are refused until "
            "there is room again: make some, or trim a stream and compact",
            command,
        )
    elif disk_space.is_low(engine, found.free_bytes, found.disk_bytes):
        share = showing.share(found.free_bytes, found.disk_bytes)
        free = f"{showing.size(found.free_bytes)} ({share})"
        more = "" if command else ": set a retention, or move the store to a larger disk"
        yield finding("space", f"only {free} of the disk is free{more}", command)


def reclaimable(examined: Examined) -> Iterator[Finding]:
    """Dead bytes that compaction would give back."""
    back, whole = examined.info.reclaimable_bytes, examined.info.log_bytes
    if back >= examined.limits.large_bytes and back >= examined.limits.back_share * whole:
        part = f"{showing.size(back)} of {showing.size(whole)} ({showing.share(back, whole)})"
        yield finding(
            "dead-share",
            f"compaction would give back {part}; it runs by itself where a process has the store "
            "open with its background work",
            examined.command("compact"),
        )


def pins(examined: Examined) -> Iterator[Finding]:
    """Pins that keep dead bytes from compaction."""
    for pin in examined.usage.pins:
        kept = [use for use in examined.usage.segments if pin.id in use.pins]
        dead = sum(use.dead_bytes + use.tombstoned_bytes for use in kept)
        if dead >= examined.limits.large_bytes:
            yield finding(
                "pin",
                f"a pin of {_owner(pin)} keeps {showing.counted(len(kept), 'segment')} with "
                f"{showing.size(dead)} of dead bytes; what still reads by it ends with an error "
                "when it is given back",
                examined.command("pins", "--release", pin.id),
            )


def _owner(pin: Pin) -> str:
    made = f", made {showing.ago(showing.at(pin.made_ms))}" if pin.made_ms else ""
    host = f" on {pin.host}" if pin.host else ""
    return f"{pin.purpose or 'a scan'} (process {pin.pid}{host}{made})"


def index(examined: Examined) -> Iterator[Finding]:
    """An index that the next opener has to build anew."""
    engine = opened_of(examined.store).engine()
    why = index_validity.why_not(engine, index_validity.read_marker(engine.fs, engine.path))
    if why and examined.info.log_bytes >= examined.limits.large_bytes:
        yield finding(
            "index",
            f"the index is behind the log: {why}; who opens the store next waits until it is "
            "built anew",
            examined.command("recover"),
        )


def codec(examined: Examined) -> Iterator[Finding]:
    """A package without its compiled parts."""
    parts = {"codec": examined.info.codec, "core": examined.info.core}
    missing = [name for name, found in parts.items() if found == "pure"]
    if missing:
        yield finding(
            "codec",
            f"the compiled {' and '.join(missing)} is missing, so everything takes many times as "
            "long: install "
            "logstore where a C compiler is, or from a wheel",
        )


def scheduled(examined: Examined) -> Iterator[Finding]:
    """Scheduled entries that are due, and that nobody adds."""
    if not examined.info.scheduled:
        return
    now = datetime.now(UTC)
    for each in examined.streams:
        due = examined.store.stream(each.name).info().next_due
        if due is not None and now - due > examined.limits.idle:
            yield finding(
                "scheduled",
                f"entries were due {showing.ago(due)} and are not added: no process has the store "
                "open with its background work",
                examined.command("serve"),
                about=readable(each.name),
            )


PENDING_EXAMINED = 200  # of each group, with the smallest IDs
OVERDUE_ENTRIES = 1000  # more than those that whole nodes keep
GROWS_WITHIN = timedelta(days=1)
NAMES_SHOWN = 3


# -- streams --------------------------------------------------------------------------------------
def streams(examined: Examined) -> Iterator[Finding]:
    """Entries that are kept too long, and dead letters that wait."""
    senders = dead_letter_streams(examined.streams)
    for each in examined.streams:
        if each.name in senders:
            yield from _dead_letters(examined, each, senders[each.name])
        else:
            yield from _retention(examined, each)


def _dead_letters(
    examined: Examined, found: StreamSummary, senders: list[str]
) -> Iterator[Finding]:
    if found.length:
        waits = showing.counted(found.length, "dead letter waits", "dead letters wait")
        yield finding(
            "dead-letters",
            f"{waits}, given up by {_listed(senders)}: look at them, then 'logstore dead retry' or "
            "'drop'",
            examined.command("dead list", found.name),
            about=readable(found.name),
        )


def _retention(examined: Examined, found: StreamSummary) -> Iterator[Finding]:
    settings = found.settings
    last = showing.clock(found.last_id.ms)
    grows = last is not None and datetime.now(UTC) - last < GROWS_WITHIN
    if not settings.retains and settings.compact_by is None:
        if grows and found.size_bytes >= examined.limits.large_bytes:
            yield finding(
                "no-retention",
                f"it has {showing.size(found.size_bytes)}, was last added to {showing.ago(last)}, "
                "and nothing is ever dropped: the disk will be full one day",
                examined.command("configure", found.name, "--max-age", "30d"),
                about=readable(found.name),
            )
        return
    if settings.max_age_ms is not None:
        oldest = datetime.now(UTC) - timedelta(milliseconds=settings.max_age_ms)
        limit = oldest - examined.limits.idle
        over = examined.store.stream(found.name).count("-", limit) if limit.timestamp() > 0 else 0
        if over >= OVERDUE_ENTRIES:
            yield finding(
                "retention",
                f"{over:,} entries are older than its max age of "
                f"{short_length(timedelta(milliseconds=settings.max_age_ms))}: "
                + (
                    "they wait until they are shipped"
                    if settings.keep_until_shipped
                    else "no process that has the store open drops them"
                ),
                examined.command("ship" if settings.keep_until_shipped else "retain"),
                about=readable(found.name),
            )


# -- groups ---------------------------------------------------------------------------------------
def groups(examined: Examined) -> Iterator[Finding]:
    """Groups that nobody reads, or with entries of consumers that are gone."""
    for each in examined.streams:
        for info in each.groups:
            with suppress(GroupNotFoundError, StreamNotFoundError):
                yield from _group(examined, each.name, info)


def _group(examined: Examined, stream: bytes, info: GroupInfo[bytes]) -> Iterator[Finding]:
    group = examined.store.stream(stream).group(info.name)
    about = group_name(stream, info.name)
    consumers = group.consumers()
    away = [who for who in consumers if who.idle >= examined.limits.idle]
    if info.lag and len(away) == len(consumers):
        since = min((who.idle for who in consumers), default=None)
        nobody = f"was last read {showing.length(since)} ago: start its workers, or destroy it"
        if since is None:
            nobody = "has no consumer, nor needs one if a Spark query keeps its progress there"
        yield finding(
            "unread",
            f"it lags by {showing.counted(info.lag, 'entry', 'entries')} and {nobody}",
            examined.command("groups", stream),
            about=about,
            level=SOON if since is None else "",
        )
    holders = [who for who in away if who.pending]
    if holders and not (info.settings.min_idle_ms and len(away) < len(consumers)):
        yield _left_behind(examined, stream, info, holders)
    if info.pending and info.settings.max_deliveries is None:
        most = max(
            (each.delivery_count for each in group.pending_entries(count=PENDING_EXAMINED)),
            default=0,
        )
        if most >= examined.limits.deliveries:
            dead = readable(stream) + ":dead"
            yield finding(
                "redelivered",
                f"an entry was delivered {most:,} times and never acknowledged, and nothing ends "
                "that: its handler fails each time",
                examined.command(
                    "configure", stream, "--group", info.name, "--max-deliveries",
                    str(examined.limits.deliveries), "--dead-letter", dead,
                ),
                about=about,
            )  # fmt: skip


def _left_behind(
    examined: Examined, stream: bytes, info: GroupInfo[bytes], holders: list[ConsumerInfo[bytes]]
) -> Finding:
    pending = sum(who.pending for who in holders)
    names = _listed([readable(who.name) for who in holders])
    idle = short_length(examined.limits.idle)
    what = (
        f"{showing.counted(pending, 'entry is', 'entries are')} pending with "
        f"{showing.counted(len(holders), 'consumer')} that went away ({names}, at least "
        f"{showing.length(min(who.idle for who in holders))} ago), and "
    )
    mend = examined.command("configure", stream, "--group", info.name, "--min-idle", idle)
    if info.settings.min_idle_ms:
        what += "nobody reads who would take them over: start its workers"
        mend = examined.command("pending", stream, info.name)
    else:
        what += "go to nobody else"
    about = group_name(stream, info.name)
    return finding("left-behind", what, mend, about=about)


def _listed(texts: list[str]) -> str:
    more = len(texts) - NAMES_SHOWN
    return ", ".join(texts[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


# -- between two looks ----------------------------------------------------------------------------
def growing(
    examined: Examined, before: list[StreamSummary], after: list[StreamSummary], span: timedelta
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
            yield finding(
                "lag-grows",
                f"its lag grew from {then:,} to {group.lag:,} entries within "
                f"{short_length(span)}, while {done:,} were read: start more workers, or "
                "read larger batches",
                examined.command("groups", each.name),
                about=group_name(each.name, group.name),
            )


RULES = (
    damage, failed_sync, space, reclaimable, pins, index, codec, scheduled, streams, groups,
)  # fmt: skip
