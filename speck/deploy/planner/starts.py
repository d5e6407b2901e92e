"""Plans how incarnations begin: the artifact, what must come before, and the start itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from speck.deploy.planner.decisions import Decision, is_live, is_rewired, may_arrive
from speck.deploy.planner.handovers import trusts
from speck.deploy.planner.sinks import clear, find_stale_sinks, list_former_sinks
from speck.deploy.planner.situation import Situation
from speck.deploy.planner.slots import find_slot_waits
from speck.deploy.planner.start_order import StartOrder, order_starts, rank_start
from speck.deploy.planner.steps import Before, Numbers, Started, StepList, Stopped, ids
from speck.deploy.planner.ways_back import find_way_back
from speck.deploy.planner.wiring import Wiring
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import Job
from speck.model.job_change import Action
from speck.model.job_operations import Carry, Start, TryMain, Upload
from speck.model.link import Link


def need_jar(steps: StepList, uploads: dict[tuple[str, str], int], job: Job) -> int:
    """The step that brings a job's artifact to its site, once for all jobs."""
    key = (job.site, job.artifact)
    if key not in uploads:
        uploads[key] = steps.add(Upload(*key), (), "needed there")
    return uploads[key]


def make_trial(wiring: Wiring, decision: Decision) -> TryMain:
    """The trial of a job's `main` as it is wanted."""
    assert decision.new is not None
    return TryMain(decision.new, *make_next_attempt(wiring, decision.job_name))


def make_next_attempt(wiring: Wiring, name: str) -> tuple[int, str]:
    inventory = wiring.situation.inventory
    attempt = inventory.attempts.get(name, 0) + 1
    old = inventory.jobs.get(name)
    if old is not None and wiring.cuts.find_together(old.job):
        attempt += 1  # after the one that catches up
    return attempt, wiring.situation.engine_job_id(name, attempt)


def make_start(wiring: Wiring, decision: Decision) -> Start:
    """The start of a job as it is wanted."""
    job, old = decision.new, decision.old
    assert job is not None
    attempt, job_id = make_next_attempt(wiring, decision.job_name)
    if decision.again and old is not None:
        attempt, job_id, old = old.attempt, old.engine_job_id, old.base
    return Start(
        job,
        attempt,
        job_id,
        not wiring.situation.wanted.links_read.isdisjoint(job.port),
        old is not None and decision.keeps_state,
        list_former_sinks(wiring.situation, decision.old, job),
        find_stale_sinks(wiring.situation, decision),
        trusts=old is not None and trusts(wiring.situation, old),
    )


@dataclass(frozen=True)
class _Rules:
    """Which steps come before starts, besides those at their own links."""

    order: StartOrder
    slot_waits: dict[str, list[int]]
    circuits: dict[Link, list[tuple[Link, int | None]]]


@dataclass(frozen=True)
class _Starts:
    """The steps in which jobs start, while they are made."""

    steps: StepList
    uploads: dict[tuple[str, str], int]
    of: dict[str, int] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)

    def add(self, own: str, operation: Start, needed: Set[int], stops: Set[int], why: str) -> int:
        """Add a start, also when `stops` are over whatever their outcome."""
        step = self.steps.add(operation, needed | stops, why, frozenset(stops - needed))
        self.of[operation.job_name] = self.readers[own] = step
        self.jobs[own] = operation.job
        return step


def start_jobs(wiring: Wiring, before: Before, numbers: Numbers) -> Started:
    """Start jobs, and clear the numbers about the links that they have left."""
    rules = _Rules(
        order_starts(wiring, before.stopped),
        find_slot_waits(wiring, before.stopped),
        _find_circuits(wiring, before.stopped),
    )
    made = _Starts(StepList(numbers), dict(before.stopped.uploads))
    for decision in wiring.decisions:
        for each in _list_with_earlier(rules.order, decision, made.of):
            if each.job_name in made.of:
                continue
            if each.starts:
                _start(wiring, before, rules, made, each)
            if each.action is not Action.REMOVE and each.job_name not in wiring.kept_jobs:
                clear(wiring, before.stopped, made.steps, each, made.of.get(each.job_name))
    return Started(made.steps.listed(), made.of, made.readers, made.jobs)


def _list_with_earlier(
    order: StartOrder, decision: Decision, started: Mapping[str, int]
) -> list[Decision]:
    """A job after all those that start before it, whatever their names."""
    if not decision.starts:
        return [decision]
    ahead, earlier_of, listed = [decision], dict[str, list[Decision]](), list[Decision]()
    while ahead:  # each is on top a second time when those before it have been listed
        each = ahead[-1]
        if each.job_name not in started and each.job_name not in earlier_of:
            earlier = earlier_of[each.job_name] = order.find_earlier(each)
            ahead += [other for other in earlier if other.job_name not in earlier_of]
            continue
        listed.append(ahead.pop())
    return listed


def _start(
    wiring: Wiring, before: Before, rules: _Rules, made: _Starts, decision: Decision
) -> None:
    """Add a start after what it needs, and what those beside it need, after those that come before
    it, and when stops downstream are over."""
    job = decision.new
    assert job is not None
    own = source_client_id(wiring.situation.installation, job.job_name, job.source)
    beside = rules.order.find_beside(decision)
    upload = need_jar(made.steps, made.uploads, job)
    needed = {
        upload,
        *ids(made.of.get(each.job_name) for each in rules.order.find_earlier(decision)),
        *(
            step
            for each in (decision, *beside)
            for step in _list_needed(wiring, before, rules, each)
        ),
        *ids([_carry(wiring, before.stopped, made.steps, decision)]),
        *rules.slot_waits.get(decision.job_name, ()),
    }
    committed = _list_committed(wiring, decision, beside)
    operation = replace(make_start(wiring, decision), commits=committed)
    reason = "new job" if decision.old is None else decision.reason
    step = made.add(own, operation, needed, set(rules.order.find_stops(decision)), reason)
    way_back = find_way_back(wiring, decision, operation)
    if way_back is not None:
        # a reader whose link another one has goes on there once it was handed back
        former = way_back.job
        reads = source_client_id(wiring.situation.installation, former.job_name, former.source)
        after = [before.stopped.of.get(decision.job_name), before.handed_over.of.get(reads), step]
        # the start may fail before the sessions are there for which it would have been waited
        after += [before.reserved.of.get(client_id) for client_id, *_ in way_back.commits]
        reason = f"if #{step} fails"
        made.steps.add(way_back, ids(after), reason, frozenset({step}), only_if_failed=step)


def _list_committed(
    wiring: Wiring, decision: Decision, beside: Sequence[Decision]
) -> tuple[tuple[str, Job, bool], ...]:
    """The sessions that change at a cut behind which the first records flow with this start, and
    whether their readers start after it."""
    assert decision.new is not None
    source = decision.new.source
    committed: dict[str, tuple[Job, bool]] = {}
    if wiring.first is not None and _begins_behind_a_cut(wiring, decision.new):
        own = source_client_id(wiring.situation.installation, decision.job_name, source)
        committed[own] = decision.new, False
    begins = _begins_at_a_cut(wiring, decision)
    fed = [source] if begins and _is_fed(wiring, source) else []
    for link in [*fed, *(link for link in decision.new.port if not _is_fed(wiring, link))]:
        committed |= {c: (job, False) for c, job in wiring.cuts.exchanges.get(link, {}).items()}
    for each in beside if _is_fed(wiring, source) else ():
        assert each.new is not None
        own = source_client_id(wiring.situation.installation, each.job_name, each.new.source)
        committed[own] = each.new, rank_start(decision) < rank_start(each)
    return tuple((client_id, *committed[client_id]) for client_id in sorted(committed))


def _begins_at_a_cut(wiring: Wiring, decision: Decision) -> bool:
    """Whether a start is not just that of a job which goes on between its links, at any record."""
    if decision.old is None or is_rewired(decision) or decision.job_name in wiring.cuts.jobs:
        return True
    return bool(wiring.cuts.find_together(decision.old.job))


def _begins_behind_a_cut(wiring: Wiring, job: Job) -> bool:
    """Whether a job that reads first begins with what another one that reads first sends behind a
    cut: that one is fed, itself or through others that read first."""
    own = source_client_id(wiring.situation.installation, job.job_name, job.source)
    session = wiring.situation.present.usable.get(own)
    if session is None or session.begun or session.instead_of is None:
        return False
    writers = wiring.situation.jobs.writers
    visited, ahead = set[Link](), [job.source]
    while ahead:
        at = ahead.pop()
        reading = (j for j in writers.get(at, ()) if j.job_name not in wiring.kept_jobs)
        sources = {each.source for each in reading} - visited
        if any(_is_sent_to(wiring.situation, source) for source in sources):
            return True
        visited |= sources
        ahead += sources
    return False


def _is_fed(wiring: Wiring, link: Link) -> bool:
    """Whether a link is fed before any job starts."""
    situation = wiring.situation
    leaving = {each.job_name for each in wiring.leaving.producers.get(link, ())}
    staying = any(
        each.job.job_name not in leaving
        and (is_live(situation, each) or may_arrive(situation, each))
        for each in situation.jobs.producers.get(link, ())
    )
    return staying or situation.has_foreign_producers(link)


def _is_sent_to(situation: Situation, link: Link) -> bool:
    """Whether jobs that run, or publishers outside speck, send to a link."""
    if situation.is_fed_outside(link):
        return True
    if link not in situation.links_reached:
        return False
    producers = situation.jobs.producers.get(link, ())
    is_written = bool(producers) or link in situation.jobs.writers
    return any(is_live(situation, each) for each in producers) or not is_written


def _list_needed(wiring: Wiring, before: Before, rules: _Rules, decision: Decision) -> list[int]:
    """The steps at links, and the stops, that come before a start."""
    job = decision.new
    assert job is not None
    own = source_client_id(wiring.situation.installation, job.job_name, job.source)
    reserved, stopped, handed_over = before.reserved, before.stopped, before.handed_over
    is_new = is_rewired(decision) or not decision.stops
    return [
        *(step for link in job.port for step in reserved.on.get(link, ())),
        *_find_made_anew(wiring, before, job.port),
        *ids([reserved.of.get(own), handed_over.of.get(own), stopped.of.get(decision.job_name)]),
        *_find_ends_on_link(wiring, before, decision),
        *_find_leaving_readers(wiring, before, decision, job),
        *(_find_closing_stops(rules, job) if is_new else ()),
    ]


def _find_ends_on_link(wiring: Wiring, before: Before, decision: Decision) -> list[int]:
    """The steps in which all readers that stop at the same record as a job do so: they look at what
    it has taken."""
    if decision.old is None:
        return []
    together = wiring.cuts.find_together(decision.old.job)
    return [*ids(before.stopped.of.get(name) for name in sorted(together))]


def _find_made_anew(wiring: Wiring, before: Before, port: Sequence[Link]) -> list[int]:
    """The steps that make sessions anew on links and behind them, which are written to already:
    what a job sends there is for them."""
    made_anew = before.reserved.made_anew
    if not made_anew:
        return []
    reached = wiring.situation.jobs.wanted_ways.find_reached(port)
    return [step for link, steps in made_anew.items() if link in reached for step in steps]


def _find_leaving_readers(
    wiring: Wiring, before: Before, decision: Decision, job: Job
) -> list[int]:
    """The steps in which readers leave the links of the port, if the job is new there, has another
    source than before, or did not run: its messages are for the readers from now on."""
    if decision.stops and not is_rewired(decision) and decision.job_name not in wiring.cuts.jobs:
        return []
    predecessors = wiring.followers.predecessors
    followed = {c: s.client_id for c, s in predecessors.items() if s.link in job.port}
    handovers = ids(before.handed_over.of.get(client_id) for client_id in followed)
    # jobs that go on between pass what one writes that reads first
    reached = wiring.situation.jobs.wanted_ways.find_reached(job.port) if wiring.first else job.port
    stops = [
        before.stopped.of[name]
        for link in reached
        for client_id, name in wiring.leaving.readers.get(link, ())
        if client_id not in followed.values()
    ]
    return [*handovers, *stops]


def _find_circuits(wiring: Wiring, stopped: Stopped) -> dict[Link, list[tuple[Link, int | None]]]:
    """Where messages on a link may go next: through jobs that are wanted (None) or that stop in the
    step of that id. Empty if none of these gets other links."""
    follows: dict[Link, list[tuple[Link, int | None]]] = defaultdict(list)
    for decision in wiring.decisions:
        stop = stopped.of.get(decision.job_name)
        if stop is not None and decision.old is not None and is_rewired(decision):
            follows[decision.old.job.source] += [(link, stop) for link in decision.old.job.port]
    for decision in wiring.decisions if follows else ():
        if decision.new is not None:
            follows[decision.new.source] += [(link, None) for link in decision.new.port]
    return dict(follows)


def _find_closing_stops(rules: _Rules, job: Job) -> set[int]:
    """The stops that must come before a start: until then the job's output would come back to
    it."""
    waits, visited, ahead = set[int](), set(job.port), list(job.port)
    while ahead:
        for link, stop_id in rules.circuits.get(ahead.pop(), ()):
            if stop_id is not None:
                waits.add(stop_id)
            if link not in visited:
                visited.add(link)
                ahead.append(link)
    return waits if job.source in visited else set()


def _carry(wiring: Wiring, stopped: Stopped, steps: StepList, decision: Decision) -> int | None:
    """Add the step that transfers a job's state to its new site, if that cannot read the old site's
    storage."""
    assert decision.new is not None
    target, name = decision.new.site, decision.job_name
    old: Incarnation | None = decision.old
    if decision.again and old is not None:
        old = old.base
    while old is not None and decision.keeps_state:
        if not old.void and (old.job.site, target) in wiring.situation.conditions.apart:
            operation = Carry(target, name, old.job.site)
            return steps.add(operation, ids([stopped.of.get(name)]), "they share no storage")
        old = old.base
    return None
