"""The planner over ports of one to four links: every rule holds for each link of a port."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from speck.model.composition import Composition
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import Inventory
from speck.model.job import Job
from speck.model.job_operations import Forget, Start
from speck.model.link import Link
from speck.model.link_operations import Clear, Drain, HandOver, Release, Reserve
from speck.model.plan import Plan, Step
from tests.unit.deploy.planner.plans import INSTALLATION, deployed, job, plan_composition

NAMES = "ABCDE"
LINKS = [Link(("cloud", "edge-b")[n % 2], f"T-{n}") for n in range(8)]


@st.composite
def wirings(draw: st.DrawFn) -> tuple[Job, ...]:
    """Jobs without a circle: each reads a link before all that it writes to."""
    jobs = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5)):
        source = draw(st.integers(0, 3))
        port = draw(st.lists(st.integers(source + 1, 7), unique=True, min_size=1, max_size=4))
        made = job(name, str(LINKS[source]), str(LINKS[port[0]]))
        jobs.append(made.with_port(tuple(LINKS[n] for n in port)))
    return tuple(sorted(jobs, key=lambda each: each.job_name))


def plan_from(before: tuple[Job, ...], after: tuple[Job, ...]) -> Plan:
    inventory = deployed(*before) if before else Inventory()
    return plan_composition(Composition("c", after), inventory)


def reader_of(each: Job) -> str:
    return source_client_id(INSTALLATION, each.job_name, each.source)


def sink_of(each: Job, link: Link) -> str:
    return sink_client_id(INSTALLATION, each.job_name, each.source, link)


def find_before(plan: Plan) -> dict[int, set[int]]:
    """All steps that come before each one."""
    before: dict[int, set[int]] = {}
    for step in plan.steps:
        before[step.id] = set(step.after).union(*(before[each] for each in step.after))
    return before


def steps_of(plan: Plan, kind: type[object]) -> list[Step]:
    return [step for step in plan.steps if isinstance(step.operation, kind)]


@given(wirings(), wirings())
def test_steps_wait_for_earlier_ones_only_and_a_plan_is_the_same_every_time(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    assert all(each < step.id for step in plan.steps for each in step.after)
    assert [step.id for step in plan.steps] == list(range(1, len(plan.steps) + 1))
    assert plan == plan_from(before, after)
    assert not plan_from(after, after).steps


@given(wirings(), wirings())
def test_a_session_is_reserved_before_a_producer_starts_on_its_link(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    earlier = find_before(plan)
    for start in steps_of(plan, Start):
        assert isinstance(start.operation, Start)
        for reserve in steps_of(plan, Reserve):
            assert isinstance(reserve.operation, Reserve)
            if reserve.operation.link in start.operation.job.port:
                assert reserve.id in earlier[start.id], (str(reserve), str(start))


@given(wirings(), wirings())
def test_a_reader_takes_the_last_numbers_of_the_link_that_it_leaves_and_of_no_other(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    writing = defaultdict[Link, set[str]](set)
    for each in before:
        for link in each.port:
            writing[link].add(sink_of(each, link))
    wanted = {each.job_name: each for each in after}
    drains = {each.operation.job_name: each.operation for each in steps_of(plan, Drain)}
    for reader in before:
        new = wanted.get(reader.job_name)
        if new is not None and new.source == reader.source:
            continue
        left = {
            sink_of(each, reader.source)
            for each in before
            if reader.source in each.port
            and (
                (now := wanted.get(each.job_name)) is None
                or now.source != each.source
                or reader.source not in now.port
            )
        }
        drain = drains.get(reader.job_name)
        sinks = set(drain.sinks) if isinstance(drain, Drain) else set[str]()
        assert left <= sinks <= writing[reader.source], str(plan)


@given(wirings(), wirings())
def test_the_numbers_about_each_link_that_a_job_leaves_are_dropped_once(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    dropped = list[tuple[str, Link, str]]()
    for step in plan.steps:
        operation = step.operation
        if isinstance(operation, Clear):
            dropped += [(operation.job_name, operation.link, sink) for sink in operation.sinks]
        elif isinstance(operation, Forget):
            left = [(each.link, sink) for each in operation.left for sink in each.sinks]
            dropped += [(operation.job_name, *each) for each in left]
    wanted = {each.job_name: each for each in after}
    expected = [
        (each.job_name, link, sink_of(each, link))
        for each in before
        for link in each.port
        if each.job_name not in wanted or link not in wanted[each.job_name].port
    ]
    assert sorted(dropped) == sorted(expected)


@given(wirings(), wirings())
def test_a_job_keeps_what_it_reported_about_each_link_that_stays_in_its_port(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    present = {each.job_name: each for each in before}
    for start in steps_of(plan_from(before, after), Start):
        assert isinstance(start.operation, Start)
        new, old = start.operation.job, present.get(start.operation.job.job_name)
        former = {(each.link, each.client_id) for each in start.operation.former_sinks}
        kept = set(old.port) & set(new.port) if old and old.source != new.source else set[Link]()
        assert former == {(link, sink_of(old, link)) for link in kept if old is not None}


@given(wirings(), wirings())
def test_a_session_is_released_after_the_stops_of_all_who_wrote_to_it_and_left(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    earlier = find_before(plan)
    stops = {
        step.operation.job_name: step.id
        for step in plan.steps
        if step.operation.kind in ("stop", "cancel")
    }
    wanted = {each.job_name: each for each in after}
    for release in steps_of(plan, Release):
        assert isinstance(release.operation, Release)
        for each in before:
            is_left = each.job_name not in wanted or release.operation.link not in (
                wanted[each.job_name].port
            )
            if release.operation.link in each.port and is_left:
                assert stops[each.job_name] in earlier[release.id], str(plan)


@given(wirings(), wirings(), st.data())
def test_a_further_link_that_nobody_reads_changes_nothing(
    before: tuple[Job, ...], after: tuple[Job, ...], data: st.DataObject
) -> None:
    """Of jobs that stay at the link that they read: of others, the same record may reach what they
    write on two ways, and one that takes the place of another one has to have the same port."""
    reading = {(each.job_name, each.source) for each in before}
    staying = {each.job_name for each in after if (each.job_name, each.source) in reading}
    names = data.draw(st.sets(st.sampled_from(NAMES))) & staying

    def widen(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
        return tuple(
            replace(each, more_sinks=(*each.more_sinks, Link("cloud", f"unread-{each.job_name}")))
            if each.job_name in names
            else each
            for each in jobs
        )

    plain, wide = plan_from(before, after), plan_from(widen(before), widen(after))
    assert [step.after for step in wide.steps] == [step.after for step in plain.steps]
    assert [str(s.operation) for s in wide.steps] == [str(s.operation) for s in plain.steps]


@given(wirings(), wirings())
def test_a_follower_has_its_place_before_a_new_producer_of_its_link_starts(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    earlier = find_before(plan)
    present = {each.job_name: each for each in before}
    for start in steps_of(plan, Start):
        assert isinstance(start.operation, Start)
        new = start.operation.job
        old = present.get(new.job_name)
        if old is not None and old.ends == new.ends:
            continue
        for handover in steps_of(plan, HandOver):
            assert isinstance(handover.operation, HandOver)
            if handover.operation.link in new.port:
                assert handover.id in earlier[start.id], str(plan)


@given(wirings(), wirings())
def test_a_rewired_job_sends_to_a_link_once_those_that_leave_it_have_stopped(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    plan = plan_from(before, after)
    earlier = find_before(plan)
    present, wanted = ({each.job_name: each for each in jobs} for jobs in (before, after))
    stops = {
        step.operation.job_name: step.id
        for step in plan.steps
        if step.operation.kind in ("stop", "cancel")
    }
    for start in steps_of(plan, Start):
        assert isinstance(start.operation, Start)
        new = start.operation.job
        old = present.get(new.job_name)
        for reader in before if old is None or old.ends != new.ends else ():
            now = wanted.get(reader.job_name)
            is_leaving = now is None or now.source != reader.source
            if is_leaving and reader.source in new.port:
                assert stops[reader.job_name] in earlier[start.id], str(plan)
