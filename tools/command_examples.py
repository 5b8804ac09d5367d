"""Examples of each command, as its help and the manual page show them.

Invariant: each can be typed as it is. It is loaded for help alone.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    # -- entries
    "add": (
        "logstore add events race:france rider=Castilla speed=30.2",
        "logstore add events race:france offer=half --ttl 1h",
    ),
    "range": (
        "logstore range events race:france -n 10",
        "logstore range events race:france --since 1h",
        "logstore range events race:france --where 'speed > 29' --reverse",
    ),
    "tail": (
        "logstore tail events race:france -n 5",
        "logstore tail events race:france --follow",
    ),
    "import": (
        "logstore import events rooms.csv --stream rooms",
        "logstore import events france.jsonl --stream race:france --resume",
    ),
    "export": (
        "logstore export events race:france france.jsonl",
        "logstore export events race:france fast.csv --where 'speed > 30'",
        "logstore export events 'race:*' races --to parquet",
    ),
    "sql": (
        "logstore sql events 'select count(*) from \"race:france\"'",
        "logstore sql events",
    ),
    # -- streams
    "streams": (
        "logstore streams events",
        "logstore streams events 'race:*' --sort bytes -n 20",
    ),
    "info": (
        "logstore info events",
        "logstore info events race:france",
    ),
    "configure": (
        "logstore configure events race:france",
        "logstore configure events race:france --max-age 30d",
        "logstore configure events jobs --group mail --min-idle 30s",
    ),
    "schema show": ("logstore schema show events race:france",),
    "schema infer": ("logstore schema infer events race:france",),
    "schema describe": ("logstore schema describe events race:france",),
    "schema set": ("logstore schema set events race:france 'rider string, speed double?'",),
    "schema drop": ("logstore schema drop events race:france --yes",),
    "delete": (
        "logstore delete events race:france 1692632086370-0 --yes",
        "logstore delete events race:france --range - '(1700000000000' --yes",
    ),
    "trim": (
        "logstore trim events race:france --max-age 7d --yes",
        "logstore trim events race:france --max-entries 100000",
    ),
    "expire": (
        "logstore expire events race:old --after 12h",
        "logstore expire events race:old --never",
    ),
    "schedule": (
        "logstore schedule events race:france",
        "logstore schedule events race:france lap=1 --after 90s",
        "logstore schedule events race:france lap=1 --every 1h --name hourly",
        "logstore schedule events race:france --cancel hourly --yes",
    ),
    "rename": ("logstore rename events race:france race:old",),
    "copy": ("logstore copy events race:france race:spare",),
    "drop": ("logstore drop events race:old --yes",),
    # -- groups and jobs
    "groups": (
        "logstore groups events",
        "logstore groups events jobs",
    ),
    "pending": (
        "logstore pending events jobs mail",
        "logstore pending events jobs mail --consumer worker-1 --min-idle 5m",
    ),
    "ack": ("logstore ack events jobs mail 1692632086370-0",),
    "claim": ("logstore claim events jobs mail worker-2 --min-idle 5m",),
    "dead list": (
        "logstore dead list events",
        "logstore dead list events jobs:dead",
    ),
    "dead show": ("logstore dead show events jobs:dead 1692632086370-0",),
    "dead retry": ("logstore dead retry events jobs:dead --all",),
    "dead drop": ("logstore dead drop events jobs:dead --all --yes",),
    "work": (
        "logstore work app:jobs --processes 4",
        "logstore work app:jobs --drain",
    ),
    # -- seeing inside
    "demo": (
        "logstore demo",
        "logstore demo --for 30s --keep",
    ),
    "top": ("logstore top events",),
    "doctor": (
        "logstore doctor events",
        "logstore doctor events --level wrong --ignore unread:jobs/mail",
    ),
    "du": ("logstore du events --segments",),
    "map": (
        "logstore map events",
        "logstore map events --svg segments.svg",
    ),
    "inspect segment": ("logstore inspect segment events 1",),
    "inspect frame": ("logstore inspect frame events 1 64",),
    "inspect stream": ("logstore inspect stream events race:france",),
    "inspect node": ("logstore inspect node events race:france +",),
    "inspect hint": ("logstore inspect hint events 1",),
    "inspect checkpoint": ("logstore inspect checkpoint events",),
    "metrics": ("logstore metrics events --stream 'race:*'",),
    # -- looking after a store
    "ping": ("logstore ping events --write",),
    "check": ("logstore check events",),
    "upgrade": (
        "logstore upgrade events --backup /backup/events-before",
        "logstore upgrade events --back-out",
    ),
    "recover": (
        "logstore recover events",
        "logstore recover events --salvage rescued",
    ),
    "backup": ("logstore backup events /backup/events",),
    "verify": ("logstore verify /backup/events",),
    "restore": ("logstore restore /backup/events again",),
    "ship": ("logstore ship events s3://bucket/events",),
    "retain": ("logstore retain events",),
    "compact": (
        "logstore compact events",
        "logstore compact events --purge",
    ),
    "checkpoint": ("logstore checkpoint events",),
    "pins": (
        "logstore pins events",
        "logstore pins events --release",
    ),
    # -- serving
    "serve": ("logstore serve events --port 6379",),
    "web": ("logstore web events",),
    "redis import": ("logstore redis import events redis://localhost:6379 --stream 'race:*'",),
    "redis export": ("logstore redis export events events.rdb",),
    "completion": ("logstore completion bash",),
}
