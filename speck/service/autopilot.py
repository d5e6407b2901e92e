"""The autopilot's loop: has compositions analysed on a schedule, and carries out good advice.

What it does next is decided by `speck.placement.autopilot.decide`; this is where that meets the
service. All that it remembers is stored before it acts: a restart neither forgets what it did nor
repeats it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from speck.clock import Clock, rfc3339
from speck.deploy.changes import Running
from speck.deploy.locks import NamedLocks
from speck.errors import NotFoundError, SpeckError
from speck.model.values import JsonObject
from speck.monitor.requirements import LATENCY, RATE
from speck.periodic import PeriodicTask
from speck.placement.autopilot import (
    Advice,
    Decision,
    Facts,
    FormerPlacement,
    Memory,
    Settings,
    decide,
)
from speck.service.compositions import Compositions, Request
from speck.service.placements import Placements, policy_named
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

KEPT = 200
"""How many entries of a composition's log are kept."""
LEAST_S = 60.0
"""An analysis looks back so long at least, where `every_s` is not shorter."""
CLOSE_S = 5.0
NAME = "autopilot"
"""The name under which it changes compositions."""


class Autopilots:
    """One for each composition for which it was switched on."""

    def __init__(
        self,
        records: Records,
        compositions: Compositions,
        placements: Placements,
        polls: SitePolls,
        clock: Clock,
        broken: Callable[[str], Iterable[str]],
        under_way: Callable[[], Iterable[Running]],
        tick_s: float = 1.0,
    ):
        """`broken`: the names of a composition's requirements that are not kept; `under_way`: all
        changes that are."""
        self._records = records
        self._compositions = compositions
        self._placements = placements
        self._polls = polls
        self._clock = clock
        self._broken = broken
        self._under_way = under_way
        self._locks = NamedLocks()
        self._task = PeriodicTask(NAME, self.look, tick_s, clock, waits_first=True)

    def start(self) -> None:
        """Begin to look after those that are on."""
        self._task.start()

    def close(self) -> None:
        """Begin nothing more. A policy that still searches is not waited for: what it finds is
        not carried out."""
        self._task.stop(CLOSE_S)

    # -- use cases ------------------------------------------------------------------------

    def get(self, composition: str) -> JsonObject:
        """Settings, what is next, and the log, newest last. Raises NotFoundError."""
        self._compositions.revision(composition)
        return self._shown(composition, self._record(composition))

    def put(self, composition: str, settings: Settings, by: str | None = None) -> JsonObject:
        """Switch it on or off, or give it other settings. Raises NotFoundError."""
        self._compositions.revision(composition)
        if settings.on:
            policy_named(settings.policy)
        with self._locks[composition]:
            record = self._record(composition)
            was = bool(record["settings"]["on"])
            record["settings"] = asdict(settings)
            record["analysis"] = record["analysis"] if settings.on else None
            record["due"] = record["due"] if settings.on and was else None
            now = f"by policy {settings.policy}" if settings.on else "what runs stays as it is"
            said = f"the autopilot of {composition} is {'on' if settings.on else 'off'}: {now}"
            self._write(composition, record, "settings", said, told=settings.on != was, by=by)
        return self._shown(composition, record)

    # -- one look -------------------------------------------------------------------------

    def look(self) -> None:
        """Do what is due for every composition, once."""
        for composition, _ in list(self._records.autopilots.items()):
            if not self._task.stopping.is_set():
                self._look_at(composition)

    def _look_at(self, composition: str) -> None:
        try:
            self._compositions.revision(composition)
        except NotFoundError:
            with self._locks[composition]:
                self._records.write(
                    {
                        self._records.autopilots.key(composition): None,
                        self._records.autopilot_logs.key(composition): None,
                    }
                )
            return
        before = self._record(composition)
        if not before["settings"]["on"]:
            return
        made, trouble = None, None
        try:  # outside the lock: whoever switches it off does not wait for a solver
            made = self._proposed(composition, before)
        except Exception as error:
            trouble = _told(error)
        if self._task.stopping.is_set():
            return
        with self._locks[composition]:
            record = self._record(composition)
            same = all(record[name] == before[name] for name in ("settings", "analysis"))
            if not record["settings"]["on"] or not same:
                return
            try:
                if trouble is not None:
                    record["analysis"] = None
                    self._write(composition, record, "trouble", trouble)
                elif made is not None:
                    self._consider(composition, record, *made)
                elif record["analysis"] is None:
                    self._begin(composition, record)
            except Exception as error:
                record["analysis"] = None
                self._write(composition, record, "trouble", _told(error))

    def _begin(self, composition: str, record: JsonObject) -> None:
        """Have it analysed, when that is due and the last change is over for long enough: what
        was measured before it says little of what is there now."""
        now, settings = self._now(), Settings(**record["settings"])
        if record["due"] is not None and now < record["due"] <= now + settings.every_s:
            return
        busy, changed_at = self._changed(composition)
        if busy is not None and changed_at is None:
            return
        quiet_s = settings.every_s if changed_at is None else now - changed_at
        if quiet_s < min(settings.every_s, LEAST_S):
            return
        record["due"] = now + settings.every_s
        window_s = min(quiet_s, max(settings.every_s, LEAST_S))
        record["analysis"] = self._placements.analyses.begin(window_s)
        self._records.write({self._records.autopilots.key(composition): record})

    def _proposed(
        self, composition: str, record: JsonObject
    ) -> tuple[JsonObject, JsonObject | None] | None:
        """The analysis that it waits for, and what is proposed by it (None when it failed); None
        while there is none that has ended."""
        if record["analysis"] is None:
            return None
        analysis = self._placements.analyses.get(record["analysis"])
        if analysis["state"] == "running":
            return None
        if analysis["state"] != "done":
            return analysis, None
        policy = record["settings"]["policy"]
        return analysis, self._placements.make(composition, policy, analysis["id"]).body

    def _consider(
        self, composition: str, record: JsonObject, analysis: JsonObject, made: JsonObject | None
    ) -> None:
        record["analysis"] = None
        if made is None:
            why = analysis["error"] or "it was ended"
            said = f"analysis {analysis['id']} is {analysis['state']}: {why}"
            self._write(composition, record, "trouble", said, analysis=analysis["id"])
            return
        settings = Settings(**record["settings"])
        self._check(composition, record, analysis)
        advice = advice_of(made, analysis, self._broken(composition))
        facts = self._facts(composition, advice)
        decision = decide(self._now(), settings, memory_from_json(record["memory"]), facts)
        record["memory"] = asdict(decision.memory)
        if decision.act:
            self._act(composition, record, made, analysis, decision)
        else:
            about = {"analysis": analysis["id"], "placement": made["id"]}
            self._write(composition, record, "wait", decision.reason, **about)

    def _act(
        self,
        composition: str,
        record: JsonObject,
        made: JsonObject,
        analysis: JsonObject,
        decision: Decision,
    ) -> None:
        """Note that it acts, then act: a stop of the service between the two costs a delay."""
        moves = ", ".join(f"{m['job_name']} to {m['to']}" for m in made["proposed"]["moves"])
        record["check"] = {
            "placement": made["id"],
            "revision": made["revision"],
            "before": wan_of(analysis, composition),
            "predicted": made["proposed"]["wan_bytes_per_s"],
            "at": self._now(),
        }
        about = {"analysis": analysis["id"], "placement": made["id"]}
        self._records.write({self._records.autopilots.key(composition): record})
        try:
            accepted = self._placements.apply(made["id"], Request(by=NAME)).body
        except SpeckError:
            record["check"] = None
            raise
        said = f"the autopilot moves {moves or 'links'} of {composition}: {decision.reason}"
        about["change"] = accepted["change"]
        self._write(composition, record, "act", said, told=True, **about)

    def _check(self, composition: str, record: JsonObject, analysis: JsonObject) -> None:
        """Tell what became of the last move, by the first analysis that saw only what came
        after it."""
        check = record["check"]
        if check is None:
            return
        begun = datetime.fromisoformat(analysis["window"]["from"]).timestamp()
        if begun < check["at"]:
            return
        record["check"] = None
        busy, _ = self._changed(composition)
        if busy is not None or self._compositions.revision(composition) != check["revision"] + 1:
            return  # it was never begun, failed, or was changed once more: this is not its outcome
        found = wan_of(analysis, composition)
        said = (
            f"between sites {composition} sent {_rate(check['before'])} before it was moved;"
            f" {_rate(check['predicted'])} was predicted, {_rate(found)} was measured"
        )
        about = {"analysis": analysis["id"], "placement": check["placement"]}
        self._write(composition, record, "outcome", said, told=True, **about)

    # -- facts ----------------------------------------------------------------------------

    def _facts(self, composition: str, advice: Advice) -> Facts:
        sites = self._records.sites()
        looks = self._polls.engines.at(sites)
        silent = sum(name not in looks or looks[name].found is None for name in sites)
        busy, changed_at = self._changed(composition)
        busy = busy or self._other_move()
        return Facts(advice, len(sites), silent, busy, changed_at)

    def _other_move(self) -> str | None:
        """Its move of another composition that is under way: who knows yet what that takes."""
        moves = [each.change for each in self._under_way() if each.change.by == NAME]
        return next(
            (f"change {move.id} of {move.composition} is under way" for move in moves), None
        )

    def _changed(self, composition: str) -> tuple[str | None, float | None]:
        """What stands in the way of a change, and when the last one came to its end."""
        head = self._records.heads.get(composition) or {}
        if head.get("removing"):
            return "the composition is being removed", None
        change = self._records.change_heads.get(head.get("last_change", ""))
        if change is None:
            return None, None
        busy = None if change["state"] == "done" else f"change {change['id']} is {change['state']}"
        if change["ended"] is None:
            return busy, None
        return busy, datetime.fromisoformat(change["ended"]).timestamp()

    # -- the record -----------------------------------------------------------------------

    def _record(self, composition: str) -> JsonObject:
        empty: JsonObject = {
            "settings": asdict(Settings()),
            "memory": asdict(Memory()),
            "due": None,
            "analysis": None,
            "check": None,
        }
        return {**empty, **(self._records.autopilots.get(composition) or {})}

    def _write(
        self,
        composition: str,
        record: JsonObject,
        kind: str,
        message: str,
        *,
        told: bool = False,
        **about: str | None,
    ) -> None:
        """Store the record with one more entry of its log; `told`: as an event, too."""
        entry = {"at": rfc3339(self._clock.now()), "kind": kind, "message": message}
        entries = [*self._log(composition), {**entry, **_known(about.items())}][-KEPT:]
        batches: list[Batch] = [
            {
                self._records.autopilots.key(composition): record,
                self._records.autopilot_logs.key(composition): {"entries": entries},
            }
        ]
        if told:
            change = about.get("change")
            batches.append(
                self._records.event(NAME, message, composition=composition, change=change)
            )
        self._records.write(*batches)

    def _log(self, composition: str) -> list[JsonObject]:
        found = self._records.autopilot_logs.get(composition)
        entries: list[JsonObject] = found["entries"] if found else []
        return entries

    def _shown(self, composition: str, record: JsonObject) -> JsonObject:
        due = record["due"]
        return {
            "composition": composition,
            **record["settings"],
            "analysis": record["analysis"],
            "next": _moment(due) if due is not None and record["settings"]["on"] else None,
            "log": self._log(composition),
        }

    def _now(self) -> float:
        return self._clock.now().timestamp()


def advice_of(made: JsonObject, analysis: JsonObject, broken: Iterable[str] = ()) -> Advice:
    """A placement as `speck.placement.autopilot` weighs it. `broken`: requirements that are not
    kept, as was measured; they count where the placement promises to be better by them."""
    missed = [f"{name} is not kept" for name in broken if _betters(made, name)]
    moving = {move["job_name"] for move in made["proposed"]["moves"]}
    doubts = [f"{name}: {why}" for name, why in made["doubts"].items() if name in moving]
    doubts += [f"{flow} was not measured" for flow in made["unmeasured"]]
    doubts += [
        f"{ranked['job_name']}: the confidence is low"
        for ranked in analysis["ranking"]
        if ranked["job_name"] in moving
        and ranked["score"] is not None  # one without an edge of its own has none
        and ranked["confidence"] == "low"
    ]
    return Advice(
        analysis=analysis["id"],
        placement=made["id"],
        today={**made["today"]["sites"], **made["today"]["links"]},
        sites={**made["proposed"]["sites"], **made["proposed"]["links"]},
        gain=made["gain"]["share"],
        broken=(*made["today"]["violations"], *missed),
        violations=tuple(made["violations"]),
        doubts=tuple(doubts),
    )


def _betters(made: JsonObject, requirement: str) -> bool:
    """Whether a placement promises to do better by a requirement than today's."""
    figure, sign = {RATE: ("max_rate", 1), LATENCY: ("latency_ms", -1)}[requirement]
    before, after = made["today"][figure], made["proposed"][figure]
    return None not in (before, after) and sign * (after - before) > 0


def wan_of(analysis: JsonObject, composition: str) -> float | None:
    """Bytes a second that were measured between sites; None when a link was not."""
    told = [
        link["wan_bytes_per_s"] for link in analysis["links"] if link["composition"] == composition
    ]
    return None if None in told or not told else float(sum(told))


def memory_from_json(data: JsonObject) -> Memory:
    """The memory as `dataclasses.asdict` wrote it."""
    left = tuple(FormerPlacement(each["at"], each["sites"]) for each in data["left"])
    return Memory(**{**data, "left": left})


def _told(error: Exception) -> str:
    """A fault of our own is told as well: it would be met again every second, by all."""
    if isinstance(error, SpeckError):
        return str(error)
    LOG.error("a look of the autopilot failed", exc_info=error)
    return f"cannot look at it: {type(error).__name__}: {error}; the service's log has more"


def _known(items: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    return {key: value for key, value in items if value is not None}


def _rate(bytes_per_s: float | None) -> str:
    return "an unknown amount" if bytes_per_s is None else f"{bytes_per_s:.0f} B/s"


def _moment(at: float) -> str:
    return rfc3339(datetime.fromtimestamp(at, UTC))
