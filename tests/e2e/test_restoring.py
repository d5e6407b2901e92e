"""A service is restored from a backup that is older than what runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from speck.binding import Target, open_engine
from speck.cli.main import root
from speck.fog.outputs import OutputReader
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.e2e.harness import Publisher, await_each_once, composition, flowing, job, numbers_of
from tests.e2e.killable import Killable
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("agents_back"), pytest.mark.long]

NAME = "restored"


def at_site(site: str) -> JsonObject:
    """One job with state, whose links are at edge-a wherever it runs."""
    links = {"source_site": "edge-a", "sink_site": "edge-a"}
    return composition(
        NAME,
        job("restored-1", site, "restored/0", "restored/1", **links),
        inputs=[("edge-a", "restored/0")],
        outputs=[("edge-a", "restored/1", "e2e-restored")],
    )


def speck(service: Killable, *args: str) -> str:
    """What a command prints on both streams."""
    result = CliRunner().invoke(root, args, env={"SPECK_SERVER": service.url})
    assert result.exit_code == 0, result.output
    return result.output


def running(service: Killable) -> dict[str, str]:
    """Engine job id -> site, of the jobs of this test that have not ended on any engine."""
    return {
        job.engine_job_id: site.name
        for site in service.fog.sites()
        for job in open_engine("flink", Target(site.engine_address)).jobs().values()
        if job.name == "restored-1" and not job.state.terminal
    }


@pytest.fixture
def ends(fog: Fog) -> Iterator[tuple[Publisher, ExitStack]]:
    """A publisher at edge-a, and what closes readers."""
    address = next(it.broker_address for it in fog.sites() if it.name == "edge-a")
    with ExitStack() as stack:
        yield stack.enter_context(Publisher(address, "restored/0")), stack


def test_a_restored_service_takes_over_a_job_that_moved_after_the_backup(
    fog: Fog, jars: Path, tmp_path: Path, ends: tuple[Publisher, ExitStack]
) -> None:
    publisher, stack = ends
    address = next(it.broker_address for it in fog.sites() if it.name == "edge-a")
    first = Killable(fog, tmp_path / "first", jars, NAME)
    second = replace(first, home=tmp_path / "second")
    saved = str(tmp_path / "saved.gz")
    with ExitStack() as life:
        life.enter_context(first.running())
        first.register()
        first.apply(at_site("edge-a"))
        out = stack.enter_context(OutputReader(address, "restored/1", "e2e-restored"))
        flow = stack.enter_context(flowing(publisher))
        wait_for(lambda: len(numbers_of(out)) > 20, "messages before the backup")
        speck(first, "backup", saved)
        first.apply(at_site("edge-b"))
        (moved,) = running(first).items()
        assert moved[1] == "edge-b"
    assert "is complete" in speck(first, "backup", "--verify", saved)
    speck(first, "restore", saved, "--home", str(second.home))
    with second.running():
        flow.go_on()
        status = " ".join(speck(second, "status").split())
        assert f"unknown, runs restored-1 edge-b {moved[0]}" in status
        assert "does not run restored-1 edge-a" in status
        refused = second.call("POST", "/compositions", json=at_site("edge-a"))
        assert (refused.status_code, "speck adopt" in refused.text) == (409, True)
        wait_for(lambda: second.call("GET", "/events").json()["events"], "a poll of the watch")
        assert dict([moved]) == running(second), "something was started by itself"
        assert f"took over restored-1 at edge-b ({moved[0]})" in speck(second, "adopt")
        second.apply(at_site("edge-b"))
        assert dict([moved]) == running(second), "what ran is not what was asked for"
        second.apply(at_site("edge-a"))
        assert list(running(second).values()) == ["edge-a"]
        flow.go_on()
        await_each_once(flow.end(), out)
        stack.close()
        answer = second.call(
            "DELETE",
            f"/compositions/{NAME}",
            params={"wait": 120, "drop_queues": "true", "drain_limit": 0},
        )
        assert answer.status_code == 204, answer.text
