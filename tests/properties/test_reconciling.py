"""Whatever sites do: no job is repaired that may run, and none is left that may be repaired."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from speck.model.engines import ArtifactKind, EngineAt
from speck.model.observation import EngineJob, EngineView, RunState, Slots
from speck.monitor.health import LIMITS, Memory, Watched, decide
from speck.monitor.stalls import Progress
from tests.examples import costly

SITES = ("a", "b", "c")
BROKEN = (RunState.FAILED, RunState.CANCELED, RunState.FINISHED, None)

views = st.lists(st.sampled_from(["silent", *RunState, None]), min_size=3, max_size=3)
looks = st.lists(st.tuples(st.floats(0.1, 400), views, st.integers(0, 3)), min_size=1, max_size=60)


def make_view(state: RunState | str | None, job: Watched, free: int) -> EngineView | None:
    if state == "silent":
        return None
    jobs = {job.engine_job_id: EngineJob(job.engine_job_id, "j", RunState(state))} if state else {}
    return EngineView("2.3", Slots(4, free), jobs)


@settings(deadline=None)
@given(looks)
def test_only_what_is_broken_and_has_slots_is_repaired_and_never_too_soon(
    polls: list[tuple[float, list[RunState | str | None], int]],
) -> None:
    jobs = {
        site: Watched("s", f"job-{site}", EngineAt(site, ArtifactKind.JAR), f"{site}-1")
        for site in SITES
    }
    memory, now = Memory(), 0.0
    repair_times: dict[str, list[float]] = {site: [] for site in SITES}
    for after, states, free in polls:
        now += after
        by_site = dict(zip(SITES, states, strict=True))
        sites = {site: make_view(state, jobs[site], free) for site, state in by_site.items()}
        decision = decide(now, sites, jobs.values(), {}, memory)
        memory = decision.memory
        assert decision.due is None or decision.due > now
        for name in decision.repair.get("s", ()):
            site = name[-1]
            assert by_site[site] in BROKEN
            assert free >= 1
            assert not memory.on_hold
            if repair_times[site]:
                assert now - repair_times[site][-1] >= LIMITS.wait_first
            repair_times[site].append(now)
            number = len(repair_times[site]) + 1
            jobs[site] = replace(jobs[site], engine_job_id=f"{site}-{number}")


@costly()
@given(st.sampled_from(BROKEN), st.floats(0.5, 60))
def test_what_stays_broken_is_repaired_again_and_again(state: RunState | None, step: float) -> None:
    job, memory, now, repairs = (
        Watched("s", "j", EngineAt("a", ArtifactKind.JAR), "a-1"),
        Memory(),
        0.0,
        0,
    )
    while now < 3000:
        decision = decide(now, {"a": make_view(state, job, 4)}, [job], {}, memory)
        memory = decision.memory
        repairs += bool(decision.repair)
        now += step
    # 1 + 2 + 4 + ... + 256 s, then every 300 s, each late by a look or two
    assert 10 <= repairs <= 19 or step > 20


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500)), min_size=1, max_size=80),
    st.floats(0.1, 700),
)
def test_a_job_whose_checkpoints_and_input_get_on_is_never_stalled(
    steps: list[tuple[int, int]], interval: float
) -> None:
    job, memory, now = Watched("s", "j", EngineAt("a", ArtifactKind.JAR), "a-1"), Memory(), 0.0
    sent = position = 0
    for checkpoint, (seconds, count) in enumerate(steps):
        now += min(seconds, 2 * interval)
        sent += count
        if sent > position:
            position += 1
        progress = {job.key: Progress(interval, checkpoint, position, sent, sent - position + 3)}
        view = make_view(RunState.RUNNING, job, 4)
        memory = decide(now, {"a": view}, [job], progress, memory).memory
        assert memory.jobs[job.key].state == "running"
