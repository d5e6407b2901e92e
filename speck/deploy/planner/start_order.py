"""Plans which starts come before others, so that a rollback neither loses nor repeats messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set

from speck.deploy.planner.draft import Decision, Draft
from speck.deploy.planner.starts import is_rewired
from speck.model.ids import source_client_id
from speck.model.job import Job
from speck.model.link import Link


class StartOrder:
    """The order of the starts of a plan, from the ends of the changed part to its beginnings.

    If a start fails, no message has been sent yet to the job: what waits for it would be in its
    session only, and not reach a reader that comes back to its old link.
    """

    def __init__(self, draft: Draft, decisions: Sequence[Decision]) -> None:
        self._draft = draft
        self._decisions_reading = defaultdict[Link, list[Decision]](list)
        self._sharing = set[str]()
        """The jobs whose link another reader leaves, or that follow another reader."""
        self._reading_anew = set[str]()
        """The jobs whose link has other producers or readers than their old one had."""
        self._taking_over = set[str]()
        """The jobs that follow another reader, or are rewired."""
        self._stops_of_rewired = dict[str, int]()
        if draft.backlog_only or not draft.drain:
            return
        before = _list_ends(each.job for each in draft.inventory.jobs.values())
        wanted = _list_ends(draft.desired.jobs)
        for decision in decisions:
            old, new = decision.old, decision.new
            if new is None:
                continue
            self._decisions_reading[new.source].append(decision)
            if decision.stop_id is not None and decision.old is not None and is_rewired(decision):
                self._stops_of_rewired[decision.job_name] = decision.stop_id
            if not decision.starts:
                continue
            name = decision.job_name
            own = source_client_id(draft.installation, name, new.source)
            leaving = draft.leaving_readers.get(new.source, ())
            if own in draft.predecessors or any(client_id != own for client_id, _ in leaving):
                self._sharing.add(name)
            if old is None or (
                old.job.source != new.source and before[old.job.source] != wanted[new.source]
            ):
                self._reading_anew.add(name)
            if own in draft.predecessors or (old is not None and is_rewired(decision)):
                self._taking_over.add(name)

    def find_earlier(self, decision: Decision) -> list[Decision]:
        """The starts downstream of a job that come before its own.

        Those of jobs that share a link with others, and, if this job takes over from others or is
        rewired, of all that read something new. A reader that only follows its producer to a link
        of another name is not waited for: if it cannot start, the messages are kept for it there.
        """
        takes_over = decision.job_name in self._taking_over
        awaited = self._sharing | self._reading_anew if takes_over else self._sharing
        if not awaited:
            return []
        # what is found waits itself for those behind it
        behind = awaited & self._taking_over if takes_over else awaited
        return [it for it in self._walk(decision, behind) if it.job_name in awaited]

    def find_stops(self, decision: Decision) -> list[int]:
        """The stops of rewired jobs downstream of a job that did not run: the messages that wait
        for it go where they are wanted now."""
        if decision.stops or decision.old is None or not self._stops_of_rewired:
            return []
        stops = self._stops_of_rewired
        found = (stops.get(it.job_name) for it in self._walk(decision, stops.keys()))
        return [step for step in found if step is not None]

    def _walk(self, decision: Decision, ends: Set[str]) -> Iterator[Decision]:
        """The decisions downstream of a job, without those behind the jobs named in `ends`."""
        assert decision.new is not None
        visited, ahead = {decision.new.sink}, [decision.new.sink]
        while ahead:
            for other in self._decisions_reading[ahead.pop()]:
                yield other
                assert other.new is not None
                if other.job_name not in ends and other.new.sink not in visited:
                    visited.add(other.new.sink)
                    ahead.append(other.new.sink)


def _list_ends(jobs: Iterable[Job]) -> defaultdict[Link, set[tuple[str, str]]]:
    """The jobs at each end of each link."""
    ends = defaultdict[Link, set[tuple[str, str]]](set)
    for job in jobs:
        ends[job.sink].add(("producer", job.job_name))
        ends[job.source].add(("reader", job.job_name))
    return ends
