"""What agents are bidden, step by step; the agents' own side is played by the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from binders.memory import MemoryEngine
from speck.binding import Transfer
from speck.errors import NotFoundError, PermanentError, TransientError, UnreachableError
from speck.model.engines import ArtifactKind, EngineAt
from speck.model.site import AgentReport
from speck.model.values import JsonObject
from speck.service import Service
from speck.sites.agent_commands import AgentCommand
from speck.sites.relay import OutOfOrderError, Relay
from speck.spec.site_schema import site_from_data
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import findings_but_of_tls, look_anew, reopened
from tests.waiting import wait_for

MOVE = Transfer("t-1", "counter", "ab" * 16, "edge-a", "edge-b", "file:///s/checkpoints/x/chk-1")
BEAT = AgentReport(state_folder="/s", listen="http://10.0.0.2:8090", free_bytes=10 << 30)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """edge-a and edge-b share nothing; cloud and cloud-2 share storage."""
    alone = [{**site_body(name), "labels": {}} for name in ("edge-a", "edge-b")]
    both = [site_body(name) for name in ("cloud", "cloud-2")]
    with memory_service(tmp_path, [*alone, *both]) as service:
        yield service


def beat(service: Service, *sites: str, **more: Any) -> None:
    for site in sites or ("edge-a", "edge-b"):
        service.agents.heartbeat(site, replace(BEAT, **more))


def commands(service: Service, site: str) -> list[JsonObject]:
    return [command.to_json() for command in service.agents.open_commands(site, (), 0.0)]


def answer(service: Service, site: str, kind: str, **body: Any) -> None:
    (command,) = [command for command in commands(service, site) if command["kind"] == kind]
    service.agents.commands.answer(site, command["id"], body)


def messages(service: Service) -> list[str]:
    return [event.message for event in service.records.events.after() if "carried" in event.message]


def test_the_target_is_ready_before_the_source_sends(service: Service) -> None:
    beat(service)
    carry = service.agents.carry
    assert not carry(MOVE).done
    assert commands(service, "edge-a") == []
    (receive,) = commands(service, "edge-b")
    assert (receive["kind"], receive["transfer"], receive["job_name"]) == (
        "receive",
        "t-1",
        "counter",
    )
    answer(service, "edge-b", "receive", state="ready", bytes=0)
    (send,) = commands(service, "edge-a")
    assert (send["kind"], send["path"], send["to"]) == ("send", MOVE.path, BEAT.listen)
    assert send["secret"] == receive["secret"]
    answer(service, "edge-a", "send", state="working", bytes=50, total=100)
    answer(service, "edge-b", "receive", state="ready", bytes=50)
    progress = carry(MOVE)
    assert (progress.done, progress.bytes, progress.total) == (False, 50, 100)
    assert commands(service, "edge-b")[0]["total"] == 100  # for an agent that starts anew
    answer(service, "edge-a", "send", state="done", bytes=100, way="direct")
    answer(service, "edge-b", "receive", state="done", bytes=90, location="file:///s/carried/c/t")
    progress = carry(MOVE)
    assert (progress.done, progress.location) == (True, "file:///s/carried/c/t")
    assert commands(service, "edge-a") == commands(service, "edge-b") == []
    (message,) = messages(service)
    assert message.startswith("state of counter carried from edge-a to edge-b: 90 bytes in ")
    carry(MOVE)
    assert len(messages(service)) == 1


def test_what_may_go_better_is_tried_again_when_it_is_asked_again(service: Service) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="failed", error="cannot take it", again=True)
    assert commands(service, "edge-b") == []
    with pytest.raises(TransientError, match="the agent of edge-b says: cannot take it"):
        service.agents.carry(MOVE)
    assert not service.agents.carry(MOVE).done
    assert len(commands(service, "edge-b")) == 1


def test_what_failed_for_good_is_told_once(service: Service) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="ready")
    answer(service, "edge-a", "send", state="failed", error="cannot find it", again=False)
    progress = service.agents.carry(MOVE)
    assert progress.done
    assert "the agent of edge-a says: cannot find it" in str(progress.failure)
    assert commands(service, "edge-b") == []
    assert not service.agents.carry(MOVE).done


def test_a_target_that_lost_what_it_had_is_sent_it_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="ready")
    answer(service, "edge-a", "send", state="done", bytes=100)
    answer(service, "edge-b", "receive", state="ready", bytes=10)
    assert commands(service, "edge-a") == []  # it may just be late
    monkeypatch.setattr("speck.sites.state_transfer._SEND_AGAIN_S", 0.0)
    answer(service, "edge-b", "receive", state="ready", bytes=10)
    assert [command["kind"] for command in commands(service, "edge-a")] == ["send"]


def test_a_target_that_lost_all_of_it_is_sent_it_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="ready", bytes=0)
    answer(service, "edge-a", "send", state="done", bytes=100)
    answer(service, "edge-b", "receive", state="ready", bytes=100, total=100)
    monkeypatch.setattr("speck.sites.state_transfer._SEND_AGAIN_S", 0.0)

    answer(service, "edge-b", "receive", state="ready", bytes=0)

    assert [command["kind"] for command in commands(service, "edge-a")] == ["send"]
    assert service.agents.carry(MOVE).bytes == 0


def test_a_target_that_had_all_of_it_from_an_earlier_try_is_told_so(service: Service) -> None:
    beat(service)
    service.agents.carry(MOVE)
    (first,) = commands(service, "edge-b")
    answer(service, "edge-b", "receive", state="ready", bytes=100)
    answer(service, "edge-a", "send", state="done", bytes=100)

    answer(service, "edge-b", "receive", state="ready", bytes=100, total=None)

    (receive,) = commands(service, "edge-b")
    assert receive["total"] == 100 and receive["id"] != first["id"], (
        "agents begin new commands only"
    )
    answer(service, "edge-b", "receive", state="done", bytes=90, location="file:///s/carried/c/t")
    assert service.agents.carry(MOVE).location == "file:///s/carried/c/t"


def test_another_try_begins_with_what_is_known_of_the_length(service: Service) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="ready", bytes=0)
    answer(service, "edge-a", "send", state="done", bytes=100)
    answer(service, "edge-b", "receive", state="failed", error="no room", again=True)
    with pytest.raises(TransientError, match="no room"):
        service.agents.carry(MOVE)

    service.agents.carry(MOVE)

    assert commands(service, "edge-b")[0]["total"] == 100


def test_what_nobody_asks_about_any_more_is_given_up(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(service)
    service.agents.carry(MOVE)
    assert len(commands(service, "edge-b")) == 1
    monkeypatch.setattr("speck.sites.state_transfer._UNWANTED_S", 0.0)
    assert commands(service, "edge-b") == []
    with pytest.raises(NotFoundError, match="it is over"):
        service.agents.transfers.under_way("t-1")


def test_an_old_answer_changes_nothing(service: Service) -> None:
    beat(service)
    service.agents.carry(MOVE)
    (old,) = commands(service, "edge-b")
    answer(service, "edge-b", "receive", state="failed", error="cannot", again=True)
    with pytest.raises(TransientError):
        service.agents.carry(MOVE)
    service.agents.carry(MOVE)
    with pytest.raises(NotFoundError):
        service.agents.commands.answer(
            "edge-b", old["id"], {"state": "done", "location": "file:///x"}
        )
    assert not service.agents.carry(MOVE).done


@pytest.mark.parametrize("silent", ["edge-a", "edge-b"])
def test_both_agents_must_be_there(service: Service, silent: str) -> None:
    other = {"edge-a": "edge-b", "edge-b": "edge-a"}[silent]
    beat(service, other)
    with pytest.raises(PermanentError, match=f"run `speck agent --site {silent}"):
        service.agents.carry(MOVE)
    beat(service, silent)
    service.agents.silent_s = -1.0
    with pytest.raises(UnreachableError, match="cannot reach the agent of edge-b: last heard at"):
        service.agents.carry(MOVE)


def test_after_a_restart_an_agent_is_known_and_missed_until_it_speaks(service: Service) -> None:
    beat(service)
    again = reopened(service)
    try:
        assert again.agents.folder("edge-a") == "file:///s"
        with pytest.raises(UnreachableError):
            again.agents.carry(MOVE)
        beat(again)
        assert not again.agents.carry(MOVE).done
    finally:
        again.close()


def test_the_label_comes_before_what_the_agent_tells(service: Service) -> None:
    keeper = service.agents
    assert keeper.folder("edge-a") is None
    beat(service, "edge-a", "cloud")
    assert keeper.folder("edge-a") == "file:///s"
    assert keeper.folder("cloud") == "memory:/state"
    assert keeper.folder("nowhere") is None
    assert keeper.shares_storage("cloud", "cloud-2")
    assert keeper.shares_storage("edge-a", "edge-a")
    assert not keeper.shares_storage("edge-a", "edge-b")
    assert not keeper.shares_storage("edge-a", "cloud")


def _ask_for_newest(service: Service, site: str, job: str) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def ask() -> None:
        try:
            results.append(service.agents.newest(EngineAt(site, ArtifactKind.JAR), job))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, results


def _shown(number: int) -> JsonObject:
    return {
        "location": f"file:///s/{number}",
        "number": number,
        "at_ms": 5,
        "bytes": 7,
        "on_request": False,
    }


@pytest.mark.parametrize(("site", "agent"), [("edge-a", "edge-a"), ("cloud", "cloud-2")])
def test_the_newest_state_by_whoever_can_list_it(service: Service, site: str, agent: str) -> None:
    beat(service, agent)
    thread, results = _ask_for_newest(service, site, "ab" * 16)
    wait_for(lambda: bool(commands(service, agent)))
    answer(service, agent, "list", state="done", states=[_shown(9), _shown(8)])
    thread.join(10)
    assert results[0].number == 9


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"states": 7},
        {"states": {"a": 1}},
        {"states": [7]},
        {"states": [{**_shown(1), "bytes": "many"}]},
        {"states": [{**_shown(1), "at_ms": float("inf")}]},
    ],
)
def test_a_malformed_list_is_an_error_of_its_site(service: Service, body: JsonObject) -> None:
    beat(service)
    thread, results = _ask_for_newest(service, "edge-a", "ab" * 16)
    wait_for(lambda: bool(commands(service, "edge-a")))
    answer(service, "edge-a", "list", state="done", **body)
    thread.join()
    (error,) = results
    assert isinstance(error, PermanentError)
    assert "cannot read the list of states that the agent of edge-a sent" in str(error)


@pytest.mark.parametrize("body", [{}, {"location": None}, {"location": ["file:///s"]}])
def test_a_target_that_does_not_say_where_the_state_is_has_failed(
    service: Service, body: JsonObject
) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="done", bytes=90, **body)
    progress = service.agents.carry(MOVE)
    assert progress.done and progress.location is None
    assert "the agent of edge-b says: it received the state but did not" in str(progress.failure)


def test_what_an_agent_says_of_a_failure_is_kept_in_part(service: Service) -> None:
    beat(service)
    service.agents.carry(MOVE)
    answer(service, "edge-b", "receive", state="failed", error="x" * 60_000)
    assert len(str(service.agents.carry(MOVE).failure)) < 2000


def test_an_agent_that_looks_elsewhere_than_the_engine_writes_is_not_believed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say that there is no state, and a job would begin anew."""
    engine = service.connections.engine("edge-a")
    monkeypatch.setattr(engine, "state_folder", lambda: "file:///elsewhere/checkpoints")
    beat(service)
    with pytest.raises(PermanentError, match="start the agent with the right --state-folder"):
        service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), "x")
    look_anew(service)
    (finding,) = findings_but_of_tls(service, "edge-a")
    assert (finding.part, finding.severity, finding.setting) == (
        "agent",
        "error",
        "state-folder",
    )
    monkeypatch.setattr(engine, "state_folder", lambda: "file:/s/checkpoints/")
    assert findings_but_of_tls(service, "edge-a") == []


def test_a_machine_with_hardly_any_memory_left_is_a_warning(service: Service) -> None:
    def look(available: int | None) -> list[tuple[str, str]]:
        report = AgentReport(memory_bytes=1000 << 20, memory_available_bytes=available)
        service.sites.heartbeat("cloud", report)
        findings = service.sites.check("cloud")
        return [(f.severity, f.value) for f in findings if f.setting.startswith("memory")]

    assert look(49 << 20) == [("warning", "49 of 1000 MB")]
    assert look(50 << 20) == look(None) == []


def test_a_machine_too_small_for_its_engine_is_an_error(service: Service) -> None:
    service.sites.heartbeat("cloud", AgentReport(memory_bytes=2 << 30))
    assert "memory" not in {each.setting for each in service.sites.check("cloud")}
    with patch.object(MemoryEngine, "machine_memory_mb", 4096, create=True):
        (finding,) = [each for each in service.sites.check("cloud") if each.setting == "memory"]
        assert (finding.part, finding.severity, finding.value) == ("agent", "error", "2048 MB")
        assert finding.why == (
            "its machine has 2.0 GB of memory, and an engine of kind memory needs one with 4 GB: no"
            " job is started on it"
        )
        service.sites.heartbeat("cloud", AgentReport(memory_bytes=4 << 30))
        assert "memory" not in {each.setting for each in service.sites.check("cloud")}


def test_an_agent_is_doubted_when_its_site_gets_another_engine(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps = ["file:///s/checkpoints"]
    monkeypatch.setattr(service.agents, "_engine_folder", lambda _site: keeps[0])
    beat(service, "edge-a")
    engine = EngineAt("edge-a", ArtifactKind.JAR)
    layout = service.agents._layout(engine)
    service.agents._refuse_elsewhere(engine, layout, "edge-a")
    keeps[0] = "file:///elsewhere/checkpoints"
    body = {**site_body("edge-a", "other.test"), "labels": {}}

    service.sites.put(site_from_data(body))

    with pytest.raises(PermanentError, match="its agent searches below /s, but the engine keeps"):
        service.agents._refuse_elsewhere(engine, layout, "edge-a")


def test_without_the_engines_word_the_agent_is_not_believed_either(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> str:
        raise UnreachableError("cannot reach it")

    monkeypatch.setattr(service.connections.engine("edge-a"), "state_folder", away)
    beat(service)
    with pytest.raises(UnreachableError, match="cannot tell whether the agent of edge-a searches"):
        service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), "x")


@pytest.mark.parametrize(
    ("beats", "severity", "text"),
    [
        (None, "warning", "none"),
        ({"free_bytes": 100 << 20}, "warning", "100 MB"),
        ({"free_bytes": 10 << 20}, "error", "10 MB"),
    ],
)
def test_site_check_tells_of_agents(
    service: Service, beats: JsonObject | None, severity: str, text: str
) -> None:
    if beats is not None:
        beat(service, **beats)
    (finding,) = findings_but_of_tls(service, "edge-a")
    assert (finding.part, finding.severity, finding.value) == ("agent", severity, text)
    assert findings_but_of_tls(service, "cloud") == []


def test_figures_alone_are_not_stored_each_time(service: Service) -> None:
    beat(service, "edge-a")
    first = service.records.store.get("beat/edge-a")
    beat(service, "edge-a", load=9.0)
    assert service.records.store.get("beat/edge-a") == first
    assert service.sites.get("edge-a").agent.load == 9.0
    beat(service, "edge-a", state_folder="/t")
    stored = service.records.store.get("beat/edge-a")
    assert stored is not None
    assert stored["body"]["state_folder"] == "/t"


def test_a_site_that_is_removed_is_forgotten(service: Service) -> None:
    beat(service, "edge-a")
    service.sites.delete("edge-a")
    service.sites.add(service.records.sites.all()["edge-b"])
    assert service.agents.beat("edge-a") == AgentReport()
    with pytest.raises(NotFoundError):
        service.agents.open_commands("edge-a", (), 0.0)


def test_a_waiting_agent_is_told_at_once(service: Service) -> None:
    beat(service)
    answers: list[list[AgentCommand]] = []
    thread = threading.Thread(
        target=lambda: answers.append(service.agents.open_commands("edge-b", (), 60.0))
    )
    thread.start()
    service.agents.carry(MOVE)
    thread.join(20)
    assert [command.kind for command in answers[0]] == ["receive"]


def test_a_relay_holds_little_and_keeps_the_order() -> None:
    relay = Relay()
    with pytest.raises(TransientError, match="has not asked for it"):
        relay.put(0, 10, b"01")
    assert relay.take(4, 0.0) is None  # so much had arrived by another way
    with pytest.raises(OutOfOrderError) as error:
        relay.put(0, 10, b"01")
    assert error.value.received == 4
    assert relay.put(4, 10, b"45") == 6
    assert relay.put(6, 10, b"67") == 8
    assert relay.take(4, 0.0) == (10, b"45")
    assert relay.take(4, 0.0) == (10, b"45")  # an answer that was lost
    assert relay.take(6, 0.0) == (10, b"67")
    assert relay.held == 2
    assert relay.take(8, 0.0) is None
    assert relay.held == 0
    block = bytes(1 << 20)
    for number in range(4):
        relay.put(8 + number * len(block), 1 << 30, block)
    assert relay.full
    with pytest.raises(TransientError, match="is behind"):
        relay.put(8 + 4 * len(block), 1 << 30, block)


def test_a_target_that_began_anew_gets_all_of_it_again() -> None:
    relay = Relay()
    relay.take(0, 0.0)
    relay.put(0, 10, b"0123")
    assert relay.take(4, 0.0) is None
    assert relay.take(0, 0.0) is None
    with pytest.raises(OutOfOrderError) as error:
        relay.put(4, 10, b"45")
    assert error.value.received == 0
