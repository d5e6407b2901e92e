"""What events say of a change: enough to explain afterwards what happened, and why."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from speck.errors import EngineRefusedError, TransientError
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import FAST, memory_service, site_body
from tests.service_helpers import DONE, composition, engine
from tests.service_helpers import job_body as body
from tests.waiting import LIMIT_S, wait_for

PATIENT = replace(FAST, retry_for_s=LIMIT_S)
"""However long a busy machine takes for each try."""
A, B = body("A"), body("B", "cloud")


def list_messages(service: Service, change: str, kind: str = "operation") -> list[str]:
    """The messages of a change in their order, without times."""
    return [
        re.sub(r"in \d+\.\d s$", "in _ s", event.message)
        for event in service.records.events.after()
        if event.change == change and event.kind == kind
    ]


def test_each_operation_says_how_long_it_took(service: Service) -> None:
    change = service.compositions.apply(composition(A), DONE).change
    assert list_messages(service, change)[-1] == "start A on edge-a: done in _ s"
    assert list_messages(service, change, "change") == ["change of c accepted", "change of c done"]


def test_a_silent_site_is_told_once_and_so_is_its_return(service: Service) -> None:
    engine("edge-a").unreachable = True
    change = service.compositions.apply(composition(A), ApplyRequest()).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    wait_for(lambda: _tries(service, change) > 3)
    engine("edge-a").unreachable = False
    wait_for(lambda: not service.changes.all_under_way())
    messages = [m for m in list_messages(service, change) if m.startswith("upload")]
    name = messages[0].split(":")[0]
    assert messages == [
        f"{name}: blocked: cannot reach http://edge-a.test:8081: made unreachable by a test",
        f"{name}: done in _ s",
    ]


def _tries(service: Service, change: str) -> int:
    return max(o.attempts for o in service.changes.get(change).operations)


def test_a_start_that_falls_silent_says_when_it_is_heard_again(service: Service) -> None:
    engine("edge-a").hold_starts = True
    change = service.compositions.apply(composition(A), ApplyRequest()).change
    wait_for(lambda: len(engine("edge-a").jobs) == 1)
    engine("edge-a").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    engine("edge-a").unreachable = False
    wait_for(
        lambda: "start A on edge-a: goes on: edge-a answers again" in list_messages(service, change)
    )
    engine("edge-a").let_go()
    wait_for(lambda: not service.changes.all_under_way())


def test_only_the_first_of_many_tries_is_told(tmp_path: Path) -> None:
    with memory_service(tmp_path, [site_body("edge-a")], bounds=PATIENT) as service:
        engine("edge-a").refuse("submit", 3, TransientError("cannot start A: busy"))
        change = service.compositions.apply(composition(A), DONE).change
        again = [m for m in list_messages(service, change) if "tried again" in m]
        assert again == ["start A on edge-a: tried again: cannot start A: busy"]
        (start,) = [o for o in service.changes.get(change).operations if o.kind == "start"]
        assert start.attempts == 4


def test_a_failure_and_what_it_kept_from_happening_are_told(service: Service) -> None:
    engine("edge-a").refuse("upload", 1, EngineRefusedError("cannot upload: no room"))
    change = service.compositions.apply(composition(A), DONE).change
    messages = list_messages(service, change)
    assert any(m.endswith("failed: cannot upload: no room") for m in messages)
    assert any(
        re.fullmatch(r"start A on edge-a: skipped: step \d+ failed: cannot upload: no room", m)
        for m in messages
    )
    assert (
        list_messages(service, change, "change")[-1] == "change of c failed: cannot upload: no room"
    )
