"""Whether a job keeps state, and how much.

The user may declare it. Otherwise it follows from the engine's plan: a keyed exchange (`HASH`)
means keyed state. The size of checkpoints is weak evidence: a stateless job's checkpoints contain
the state of its connectors (the source's numbers, and the sink's recent messages, up to
`CONNECTORS_BYTES`). So a job without a keyed exchange counts as stateless while its checkpoints are
no larger than that, and as unknown (null) beyond. Into a program no engine looks: unless declared,
it is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.unknowns import pick_most
from speck.metrics.dataset.schema import PLANS
from speck.model.values import JsonObject

CONNECTORS_BYTES = 1_100_000
"""Maximum size of a stateless job's checkpoints: the sink keeps up to 1 MB of messages that it may
have to send again. Measured after two minutes of a few 4 kB messages per second: 66 to 368 kB, and
growing."""

_ENDS = ("source_site", "source_topic", "sink_site", "sink_topic")

NEWEST_PLANS = Contract("newest plans", contract_of(PLANS).columns)


def choose_newest_plans(plans: DataFrame) -> DataFrame:
    """PLANS rows -> the newest of each task."""
    step = "read plans"
    return NEWEST_PLANS.query(
        step,
        """
        SELECT * FROM (
          SELECT *,
            row_number() OVER (PARTITION BY engine_job_id, vertex ORDER BY at DESC) AS place
          FROM {plans})
        WHERE place = 1
        """,
        plans=contract_of(PLANS).check(plans, step),
    )


def wire_plans(plans: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Rows of NEWEST_PLANS -> by incarnation: its `composition` and `job_name`, the newest row's
    `at`, the `source_` and `sink_` `site` and `topic`, whether outsiders feed the topic that it
    reads (`source_is_input`, as declared), whether it is `pinned`; and whether its plan has a
    `keyed` exchange and it is `declared` stateful (both None if unknown)."""
    rows: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for plan in plans:
        rows[plan["engine_job_id"]].append(plan)
    return {name: _wire(name, tasks) for name, tasks in rows.items()}


def _wire(engine_job_id: str, tasks: list[JsonObject]) -> JsonObject:
    newest = max(tasks, key=lambda task: task["at"])
    strategies = (task["ship_strategies"] for task in tasks)
    return {
        "engine_job_id": engine_job_id,
        **{name: newest[name] for name in ("composition", "job_name", "at", *_ENDS)},
        "source_is_input": bool(newest["source_is_input"]),
        "pinned": any(task["pinned"] for task in tasks),
        "keyed": pick_most(None if each is None else "HASH" in each for each in strategies),
        "declared": pick_most(task["stateful"] for task in tasks),
    }


def judge_state(
    plan: JsonObject | None, checkpoint_bytes: int | None
) -> tuple[bool | None, str | None]:
    """Whether an incarnation keeps state (None: unknown), and the evidence (None without a plan),
    by its wires and the size of its checkpoints."""
    if plan is None:
        return None, None
    if plan["declared"] is not None:
        return plan["declared"], "declared"
    if plan["keyed"] is None:
        return None, "how records are exchanged in it is not known, and nothing is declared"
    if plan["keyed"]:
        return True, "its plan has a keyed exchange"
    if checkpoint_bytes is None:
        return None, "no keyed exchange, and no checkpoint yet"
    if checkpoint_bytes > CONNECTORS_BYTES:
        return None, "no keyed exchange, but large checkpoints"
    why = "no keyed exchange, and its checkpoints are no larger than connector state"
    return False, why
