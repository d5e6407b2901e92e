"""The autopilot: analyses compositions on a schedule and applies good placements.

`speck.placement.autopilot.decide` decides what it does next; this module connects that to the
service. Its memory is stored before it acts, so that a restart neither forgets nor repeats a move.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from speck.clock import Clock, rfc3339
from speck.deploy.changes import Running
from speck.deploy.locks import NamedLocks
from speck.errors import NotFoundError, SpeckError
from speck.model.values import JsonObject
from speck.periodic import PeriodicTask
from speck.placement.autopilot import (
    Advice,
    AutopilotDecision,
    Facts,
    FormerPlacement,
    Memory,
    Settings,
    decide,
)
from speck.placement.scaling import count_subtasks
from speck.service.advice import advice_of, list_scaled, wan_of
from speck.service.compositions import ApplyRequest, Compositions
from speck.service.placements import Placements, load_policy
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

KEPT = 200
"""How many entries of a composition's log are kept."""
LEAST_S = 60.0
"""An analysis covers at least this many seconds, unless `every_s` is shorter."""
CLOSE_S = 5.0
NAME = "autopilot"
"""The name under which it changes compositions."""


class Autopilots:
    """The autopilots of all compositions for which they were switched on."""

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
        """`broken` returns the names of a composition's unmet requirements, `under_way` all
        changes under way."""
        self._records = records
        self._compositions = compositions
        self._placements = placements
        self._polls = polls
        self._clock = clock
        self._broken = broken
        self._under_way = under_way
        self._locks = NamedLocks()
        self._task = PeriodicTask(NAME, self.run_round, tick_s, clock, waits_first=True)

    def start(self) -> None:
        """Start the rounds."""
        self._task.start()

    def close(self) -> None:
        """Start nothing more. A policy that is still searching is not waited for, and its answer
        is not applied."""
        self._task.stop(CLOSE_S)

    # -- use cases ------------------------------------------------------------------------

    def get(self, composition: str) -> JsonObject:
        """Settings, the next step and the log, newest last. Raises NotFoundError."""
        self._compositions.revision(composition)
        return self._render(composition, self._record(composition))

    def put(self, composition: str, settings: Settings, by: str | None = None) -> JsonObject:
        """Switch it on or off, or change its settings. Raises NotFoundError."""
        self._compositions.revision(composition)
        if settings.on:
            load_policy(settings.policy)
        with self._locks[composition]:
            record = self._record(composition)
            was_on = bool(record["settings"]["on"])
            record["settings"] = asdict(settings)
            record["analysis"] = record["analysis"] if settings.on else None
            record["due"] = record["due"] if settings.on and was_on else None
            consequence = f"policy {settings.policy}" if settings.on else "running jobs stay as is"
            state = "on" if settings.on else "off"
            message = f"the autopilot of {composition} is {state}: {consequence}"
            switched = settings.on != was_on
            self._write(composition, record, "settings", message, as_event=switched, by=by)
        return self._render(composition, record)

    # -- one round -------------------------------------------------------------------------

    def run_round(self) -> None:
        """Take the step that is due for each composition; none while the store is `restored`."""
        if self._records.restored is not None:
            return
        for composition, _ in list(self._records.autopilots.items()):
            if not self._task.stopping.is_set():
                self._advance(composition)

    def _advance(self, composition: str) -> None:
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
        proposal, trouble = None, None
        try:  # outside the lock: whoever switches it off does not wait for a solver
            proposal = self._propose(composition, before)
        except Exception as error:
            trouble = _describe(error)
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
                elif proposal is not None:
                    self._consider(composition, record, *proposal)
                elif record["analysis"] is None:
                    self._begin(composition, record)
            except Exception as error:
                record["analysis"] = None
                self._write(composition, record, "trouble", _describe(error))

    def _begin(self, composition: str, record: JsonObject) -> None:
        """Start an analysis when one is due and the last change ended long enough ago: older
        measurements say little about the present wiring."""
        now, settings = self._now(), Settings(**record["settings"])
        if record["due"] is not None and now < record["due"] <= now + settings.every_s:
            return
        busy, changed_at = self._last_change(composition)
        if busy is not None and changed_at is None:
            return
        quiet_s = settings.every_s if changed_at is None else now - changed_at
        if quiet_s < min(settings.every_s, LEAST_S):
            return
        record["due"] = now + settings.every_s
        window_s = min(quiet_s, max(settings.every_s, LEAST_S))
        record["analysis"] = self._placements.analyses.begin(window_s, settings.ahead_s)
        self._records.write({self._records.autopilots.key(composition): record})

    def _propose(
        self, composition: str, record: JsonObject
    ) -> tuple[JsonObject, JsonObject | None] | None:
        """The analysis that it waits for, and the placement made from it (None when it failed);
        None while no analysis has ended."""
        if record["analysis"] is None:
            return None
        analysis = self._placements.analyses.get(record["analysis"])
        if analysis["state"] == "running":
            return None
        if analysis["state"] != "done":
            return analysis, None
        policy, scale = record["settings"]["policy"], record["settings"]["scale"]
        answer = self._placements.make(composition, policy, analysis["id"], scale=scale)
        return analysis, answer.body

    def _consider(
        self,
        composition: str,
        record: JsonObject,
        analysis: JsonObject,
        placement: JsonObject | None,
    ) -> None:
        record["analysis"] = None
        if placement is None:
            why = analysis["error"] or "it was cancelled"
            message = f"analysis {analysis['id']} is {analysis['state']}: {why}"
            self._write(composition, record, "trouble", message, analysis=analysis["id"])
            return
        settings = Settings(**record["settings"])
        self._check(composition, record, analysis)
        advice = advice_of(placement, analysis, self._broken(composition))
        facts = self._facts(composition, advice)
        decision = decide(self._now(), settings, memory_from_json(record["memory"]), facts)
        record["memory"] = asdict(decision.memory)
        if decision.act:
            self._act(composition, record, placement, analysis, decision)
        else:
            about = {"analysis": analysis["id"], "placement": placement["id"]}
            self._write(composition, record, "wait", decision.reason, **about)

    def _act(
        self,
        composition: str,
        record: JsonObject,
        placement: JsonObject,
        analysis: JsonObject,
        decision: AutopilotDecision,
    ) -> None:
        """Store that it acts, then act: a stop of the service in between costs a delay only."""
        moves = ", ".join(f"{m['job_name']} to {m['to']}" for m in placement["proposed"]["moves"])
        scaled = ", ".join(
            f"{each['job_name']} to {count_subtasks(each['to'])}" for each in list_scaled(placement)
        )
        verbs = [f"moves {moves}"] if moves else []
        verbs += [f"scales {scaled}"] if scaled else []
        record["check"] = {
            "placement": placement["id"],
            "revision": placement["revision"],
            "before": wan_of(analysis, composition),
            "predicted": placement["proposed"]["wan_bytes_per_s"],
            "at": self._now(),
        }
        about = {"analysis": analysis["id"], "placement": placement["id"]}
        self._records.write({self._records.autopilots.key(composition): record})
        try:
            accepted = self._placements.apply(placement["id"], ApplyRequest(by=NAME)).body
        except SpeckError:
            record["check"] = None
            raise
        what = " and ".join(verbs) or "moves links"
        message = f"the autopilot {what} of {composition}: {decision.reason}"
        about["change"] = accepted["change"]
        self._write(composition, record, "act", message, as_event=True, **about)

    def _check(self, composition: str, record: JsonObject, analysis: JsonObject) -> None:
        """Report the outcome of the last move, from the first analysis of a window that lies
        wholly after it."""
        check = record["check"]
        if check is None:
            return
        begun = datetime.fromisoformat(analysis["window"]["from"]).timestamp()
        if begun < check["at"]:
            return
        record["check"] = None
        busy, _ = self._last_change(composition)
        if busy is not None or self._compositions.revision(composition) != check["revision"] + 1:
            return  # the move never began, failed, or was followed by another change
        measured = wan_of(analysis, composition)
        message = (
            f"between sites {composition} sent {_rate(check['before'])} before it was moved;"
            f" {_rate(check['predicted'])} was predicted, {_rate(measured)} was measured"
        )
        about = {"analysis": analysis["id"], "placement": check["placement"]}
        self._write(composition, record, "outcome", message, as_event=True, **about)

    # -- facts ----------------------------------------------------------------------------

    def _facts(self, composition: str, advice: Advice) -> Facts:
        sites = self._records.sites()
        polls = self._polls.engines.poll(sites)
        silent = sum(name not in polls or polls[name].answer is None for name in sites)
        busy, changed_at = self._last_change(composition)
        busy = busy or self._other_move()
        return Facts(advice, len(sites), silent, busy, changed_at)

    def _other_move(self) -> str | None:
        """The autopilot's move of another composition that is under way, if any."""
        moves = [each.change for each in self._under_way() if each.change.by == NAME]
        return next(
            (f"change {move.id} of {move.composition} is under way" for move in moves), None
        )

    def _last_change(self, composition: str) -> tuple[str | None, float | None]:
        """Why a change cannot start now, and when the last one ended."""
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
        as_event: bool = False,
        **about: str | None,
    ) -> None:
        """Store the record with one more log entry; `as_event`: as an event, too."""
        entry = {"at": rfc3339(self._clock.now()), "kind": kind, "message": message}
        entries = [*self._log(composition), {**entry, **_without_none(about)}][-KEPT:]
        batches: list[Batch] = [
            {
                self._records.autopilots.key(composition): record,
                self._records.autopilot_logs.key(composition): {"entries": entries},
            }
        ]
        if as_event:
            change = about.get("change")
            batches.append(
                self._records.event(NAME, message, composition=composition, change=change)
            )
        self._records.write(*batches)

    def _log(self, composition: str) -> list[JsonObject]:
        log = self._records.autopilot_logs.get(composition)
        entries: list[JsonObject] = log["entries"] if log else []
        return entries

    def _render(self, composition: str, record: JsonObject) -> JsonObject:
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


def memory_from_json(data: JsonObject) -> Memory:
    """The memory as `dataclasses.asdict` wrote it."""
    left = tuple(FormerPlacement(each["at"], each["sites"]) for each in data["left"])
    return Memory(**{**data, "left": left})


def _describe(error: Exception) -> str:
    """The message of an error, one of speck's own included: it would recur every second."""
    if isinstance(error, SpeckError):
        return str(error)
    LOG.error("a round of the autopilot failed", exc_info=error)
    return f"cannot analyse it: {type(error).__name__}: {error}; the service's log has more"


def _without_none(about: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in about.items() if value is not None}


def _rate(bytes_per_s: float | None) -> str:
    return "an unknown amount" if bytes_per_s is None else f"{bytes_per_s:.0f} B/s"


def _moment(at: float) -> str:
    return rfc3339(datetime.fromtimestamp(at, UTC))
