"""Tables of the metrics dataset: columns, types and units.

A row is the result of one poll. A value that was not reported is null, never 0; a site that did not
answer has no row. Counters ("total") grow from 0 and fall back to 0 when a task restarts. Times are
UTC. `day` (of `at`, UTC) and `composition` are in the folders' names, not in the files. Jobs posted
alone have the composition `_alone`, which is no valid name of a composition.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

ALONE = "_alone"
"""The partition of jobs that belong to no composition."""

_AT = pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False)


@dataclass(frozen=True, slots=True)
class Table:
    """One table: `partitions` are the levels of folders, `about` describes each column.

    `key` identifies a row.
    """

    name: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    key: tuple[str, ...]
    about: dict[str, str]


def _make_table(
    name: str,
    key: tuple[str, ...],
    columns: tuple[tuple[str, pa.DataType, str], ...],
    *,
    of_composition: bool = True,
) -> Table:
    fields = (
        pa.field(column, kind, nullable=column not in key and column != "tier")
        for column, kind, _ in columns
    )
    partitions = ("day", "composition") if of_composition else ("day",)
    about = {"at": "when the poll began", **{column: text for column, _, text in columns}}
    return Table(name, pa.schema([_AT, *fields]), partitions, ("at", *key), about)


_I32, _I64, _F64, _BOOL, _TEXT = pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string()

TASKS = _make_table(
    "tasks",
    ("engine_job_id", "vertex", "subtask"),
    (
        ("job_name", _TEXT, "the job"),
        ("site", _TEXT, "the site whose engine runs it"),
        ("engine_job_id", _TEXT, "the incarnation, as its engine names it"),
        ("attempt", _I32, "the incarnation's number"),
        ("vertex", _TEXT, "the engine's id of the task (a chain of operators)"),
        ("subtask", _I32, "which of the task's parallel subtasks, from 0"),
        ("subtasks", _I32, "how many there are"),
        ("is_source", _BOOL, "the task holds the job's source"),
        ("is_sink", _BOOL, "the task holds the job's sink"),
        ("busy_ms", _F64, "ms, total: its thread worked (wall time)"),
        ("idle_ms", _F64, "ms, total: it waited for input"),
        ("back_pressured_ms", _F64, "ms, total: it waited for room in its output"),
        ("cpu_ms", _F64, "ms, total: CPU time of its thread, where the connector reports it"),
        ("records_in", _I64, "records, total: received (by a source: messages from its link)"),
        ("records_out", _I64, "records, total: sent (by a sink: messages to its link)"),
        (
            "bytes_in",
            _I64,
            "bytes, total: of a source, the messages received, as their broker carries them",
        ),
        (
            "bytes_out",
            _I64,
            "bytes, total: of a sink, the messages sent, as their broker carries them",
        ),
        ("restarts", _I32, "total: restarts of the job by its engine"),
        ("checkpoint_id", _I64, "the newest completed checkpoint"),
        ("checkpoint_bytes", _I64, "bytes: its size"),
        ("checkpoint_ms", _I64, "ms: how long it took"),
        ("host_cpu", _F64, "0 to 1: share of the machine's cores in use by anything"),
    ),
)
"""One row for each subtask of each job and poll."""

LINKS = _make_table(
    "links",
    ("broker_site", "topic", "role", "client_id"),
    (
        ("broker_site", _TEXT, "the site whose broker carries the link"),
        ("topic", _TEXT, "the link's topic"),
        ("role", _TEXT, "`producer` or `reader`"),
        ("client_id", _TEXT, "the client id of that end"),
        ("job_name", _TEXT, "the job at that end; null for a reader outside speck"),
        ("engine_site", _TEXT, "the site where that job runs; null outside speck"),
        ("epoch", _I64, "a producer's epoch; its numbers begin at 0 in each"),
        ("messages", _I64, "messages, total: sent or taken"),
        (
            "lag",
            _I64,
            "messages: sent by producers that report numbers, and not yet taken by this reader",
        ),
    ),
)
"""One row for each end of each link and poll, from sent and taken numbers."""

PLANS = _make_table(
    "plans",
    ("engine_job_id", "vertex"),
    (
        ("job_name", _TEXT, "the job"),
        ("site", _TEXT, "the site whose engine runs it"),
        ("engine_job_id", _TEXT, "the incarnation"),
        ("vertex", _TEXT, "the engine's id of the task"),
        ("description", _TEXT, "the engine's description of its operators"),
        ("parallelism", _I32, "subtasks"),
        (
            "ship_strategies",
            pa.list_(_TEXT),
            "how records come to it: FORWARD, HASH, ...; null: the engine does not look into jobs",
        ),
        ("source_site", _TEXT, "the site of the broker that the job reads from"),
        ("source_topic", _TEXT, "the topic that it reads"),
        ("sink_site", _TEXT, "the site of the broker that the job writes to"),
        ("sink_topic", _TEXT, "the topic that it writes"),
        ("pinned", _BOOL, "the composition has `pinned: true`"),
        ("stateful", _BOOL, "declared by the user; null: not declared"),
        ("source_is_input", _BOOL, "the composition declares the topic it reads as an input"),
    ),
)
"""One row for each task of an incarnation, when it is first seen and again each hour."""

SITES = _make_table(
    "sites",
    ("site",),
    (
        ("site", _TEXT, "the site"),
        ("tier", _TEXT, "`edge` or `cloud`"),
        ("slots_total", _I32, "task slots"),
        ("slots_free", _I32, "task slots that no job uses"),
        ("cores", _F64, "CPU cores that the engine may use (calibrated, else as reported)"),
        ("core_speed", _F64, "speed of one core against the reference (calibrated), 1: as fast"),
        ("cpu_ms", _F64, "ms, total: CPU time of the engine's processes"),
        ("memory_bytes", _I64, "bytes: resident memory, or the engine's closest figure"),
        ("heap_used_bytes", _I64, "bytes: used of the JVMs' heap"),
        ("heap_max_bytes", _I64, "bytes: the heap's limit"),
        ("host_cpu", _F64, "0 to 1: share of the machine's cores in use by anything"),
        ("host_cores", _I32, "cores of the machine"),
        ("uplink_mbps", _F64, "Mbit/s: of the site's registration"),
    ),
    of_composition=False,
)
"""One row for each site and poll."""

BROKERS = _make_table(
    "brokers",
    ("site",),
    (
        ("site", _TEXT, "the site"),
        ("messages_in", _I64, "messages, total: received"),
        ("messages_out", _I64, "messages, total: sent"),
        ("bytes_in", _I64, "bytes, total: received, with all that is no message"),
        ("bytes_out", _I64, "bytes, total: sent"),
        ("dropped", _I64, "messages, total: dropped because a queue was full"),
        ("queued", _I64, "messages: now queued for readers"),
        ("clients", _I32, "connections now"),
        ("uptime_s", _I64, "s: time since its start"),
    ),
    of_composition=False,
)
"""One row for each broker and poll."""

FORMER_NAMES = {"pace": "core_speed"}
"""Columns of older exports, and what they are called now: an import says so."""

TABLES: dict[str, Table] = {t.name: t for t in (TASKS, LINKS, PLANS, SITES, BROKERS)}
