"""A composition is removed with consent to drop queues, whatever goes wrong: nothing goes silently.

The service is killed at every point of every kind of operation, or the change is cancelled after
each of its outcomes and the removal requested again, while one part of the composition cannot be
drained. What a released session held is among the queues that the changes report as dropped, and
what running jobs could still take is taken.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from speck import failpoints
from speck.errors import NotFoundError
from speck.failpoints import POINTS
from speck.model.values import JsonObject
from speck.service import Service
from tests.crash_scenarios import IMPOSSIBLE
from tests.memory_fog import MemoryKeeper, memory_service, site_body
from tests.properties.test_cancelling import cancelling_after, feed
from tests.service_helpers import DONE, broker, composition, engine, job_body, look_anew
from tests.unit.deploy.test_crash import Mortal
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b", "cloud")
FED, LIMIT_S = 6, 0.1
A = job_body("A", "edge-a", source_topic="in", sink_topic="x")
B = job_body(
    "B", "edge-b", source_site="edge-a", source_topic="x", sink_site="cloud", sink_topic="y"
)
C = job_body("C", "cloud", source_topic="y", sink_topic="z")
STOPPED = job_body("S", "cloud", source_topic="z", state="stopped")
D = job_body("D", "cloud", source_topic="y", sink_topic="w")
OTHER: JsonObject = {"site": "cloud", "topic": "w", "client_id": "other"}
DB: JsonObject = {"site": "cloud", "topic": "z", "client_id": "db"}


def go_well() -> None:
    """Only what waits for the outside reader and the stopped job cannot be drained."""


def hang() -> None:
    """D can pass nothing on, since its link has lost its reader, and so takes nothing."""
    del broker("cloud").sessions["other"]


def lose_a_broker() -> None:
    broker("cloud").unreachable = True


TROUBLES = (go_well, hang, lose_a_broker)


@contextmanager
def fog(trouble: Callable[[], None]) -> Iterator[Mortal]:
    keeper = MemoryKeeper()
    with (
        tempfile.TemporaryDirectory() as folder,
        memory_service(Path(folder), map(site_body, SITES), keeper=keeper, apart=False) as service,
    ):
        running = composition(A, B, C, D, {**STOPPED, "state": "running"}, outputs=[DB, OTHER])
        assert service.compositions.apply(running, DONE).state == "done"
        desired = composition(A, B, C, D, STOPPED, outputs=[DB, OTHER])
        assert service.compositions.apply(desired, DONE).state == "done"
        feed(1, FED)
        trouble()
        feed(FED + 1, 2 * FED)
        look_anew(service)
        yield Mortal(service, keeper)


def remove(service: Service) -> None:
    """Until it is gone; as somebody would who sees that it is not."""
    for _ in range(4):
        try:
            service.compositions.delete("c", 20, drop_queues=True, drain_limit_s=LIMIT_S)
        except NotFoundError:
            return
        wait_for(lambda: not service.changes.all_under_way())
    raise AssertionError(service.changes.all("c")[0])


def check(service: Service, trouble: Callable[[], None]) -> None:
    for site in SITES:
        assert engine(site).running() == []
        broker(site).unreachable = False

    def is_empty() -> bool:
        look_anew(service)
        service.watch.poll()
        return not any(broker(site).sessions for site in SITES)

    wait_for(is_empty, "all sessions to be ended")
    told: Counter[str] = Counter()
    for change in service.changes.all("c"):
        for queue in change.dropped:
            told[queue.client_id] += 10**6 if queue.messages is None else queue.messages
    for site in SITES:
        for client_id, messages in broker(site).abandoned.items():
            assert told[client_id] >= len(messages), (client_id, len(messages), told)
    dropped = {queue.reader for change in service.changes.all("c") for queue in change.dropped}
    assert dropped >= {"db", "S"}
    # A, once stopped, leaves an input whose publishers nobody knows
    assert dropped.isdisjoint("B" if trouble is lose_a_broker else "BC")
    assert trouble is lose_a_broker or ("D" in dropped) == (trouble is hang)
    events = " ".join(event.message for event in service.records.events.after())
    assert all(f"dropped the queue of {reader}" in events for reader in dropped)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_removal_that_is_cancelled_and_repeated_drops_nothing_silently(
    trouble: Callable[[], None],
) -> None:
    outcomes, is_over = 0, False
    while not is_over:
        with fog(trouble) as mortal:
            service = mortal.service
            with cancelling_after(service, outcomes):
                service.compositions.delete("c", 20, drop_queues=True, drain_limit_s=LIMIT_S)
                wait_for(lambda s=service: not s.changes.all_under_way())
            is_over = service.changes.all("c")[0].state == "done"
            remove(service)
            check(service, trouble)
        outcomes += 1
    assert outcomes > 5


KINDS = ("stop", "cancel", "drain", "release", "forget")
DEATHS = [
    f"{kind}:{point}" for kind in KINDS for point in POINTS if (kind, point) not in IMPOSSIBLE
]
ALL = [(trouble, at) for at in DEATHS for trouble in TROUBLES]
QUICK = ALL[:: 2 * len(TROUBLES) + 1]  # of each kind some points, with each trouble
EACH = [pytest.param(*each, marks=() if each in QUICK else pytest.mark.long) for each in ALL]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("trouble", "at"), EACH)
def test_a_killed_service_goes_on_and_names_what_it_drops(
    trouble: Callable[[], None], at: str
) -> None:
    with fog(trouble) as mortal:
        mortal.arm(at)
        answer = mortal.service.compositions.delete("c", 0, drop_queues=True, drain_limit_s=LIMIT_S)
        change = answer.change
        wait_for(lambda: mortal.dead.is_set() or mortal.service.changes.get(change).state == "done")
        if not mortal.dead.is_set():  # with this trouble there is no such operation
            failpoints.disarm()
            assert trouble is lose_a_broker or at.startswith("cancel"), at
            return
        again = mortal.buried()
        failpoints.disarm()
        try:
            wait_for(lambda: again.changes.get(change).state == "done")
            check(again, trouble)
        finally:
            again.close()
