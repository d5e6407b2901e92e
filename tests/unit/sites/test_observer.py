"""One look at every site concerned."""

from __future__ import annotations

import threading
from pathlib import Path

from binders.memory import World
from speck.errors import TransientError
from speck.model.observation import Observation
from speck.sites.connections import Connections
from speck.sites.observer import begin_observing, observe
from speck.sites.pollers.polling import Polling
from speck.spec.site_schema import site_from_data
from tests.memory_fog import site_body
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b", "cloud")


def polling(folder: Path) -> Polling:
    World.reset()
    sites = {name: site_from_data(site_body(name)) for name in SITES}
    return Polling(Connections(lambda: sites, folder), lambda: len(sites), 0, 0)


def engine_address(site: str) -> str:
    return f"http://{site}.test:8081"


def test_engines_and_brokers_are_looked_at_as_asked(tmp_path: Path) -> None:
    observation = observe(polling(tmp_path), ["edge-a", "cloud"], ["cloud"])
    assert set(observation.engines) == {"edge-a", "cloud"}
    assert set(observation.brokers) == {"cloud"}
    assert observation.unreachable == {}


def test_nothing_to_look_at_is_an_empty_observation(tmp_path: Path) -> None:
    assert observe(polling(tmp_path), []) == Observation({})


def test_all_are_asked_before_any_answer_is_awaited(tmp_path: Path) -> None:
    opened = polling(tmp_path)
    world = World.current()
    await_all = begin_observing(opened, SITES)
    wait_for(lambda: all(world.engine(engine_address(site)).calls for site in SITES))
    assert set(await_all().engines) == set(SITES)


def test_a_silent_site_is_told_with_the_reason_and_hides_no_other(tmp_path: Path) -> None:
    opened = polling(tmp_path)
    World.current().engine(engine_address("edge-a")).unreachable = True
    refusal = TransientError("cannot look: busy")
    World.current().engine(engine_address("edge-b")).refuse("view", 1, refusal)
    observation = observe(opened, SITES)
    assert set(observation.engines) == {"cloud"}
    assert observation.unreachable == {
        "edge-a": "cannot reach http://edge-a.test:8081: made unreachable by a test",
        "edge-b": "cannot look: busy",
    }


def test_a_silent_engine_does_not_hide_its_site_s_broker(tmp_path: Path) -> None:
    opened = polling(tmp_path)
    World.current().engine(engine_address("edge-a")).unreachable = True
    observation = observe(opened, ["edge-a"], ["edge-a"])
    assert set(observation.brokers) == {"edge-a"}
    assert set(observation.unreachable) == {"edge-a"}


def test_all_sites_are_looked_at_at_the_same_time(tmp_path: Path) -> None:
    opened = polling(tmp_path)
    meeting = threading.Barrier(len(SITES))
    for site in SITES:
        World.current().engine(engine_address(site)).before = lambda *_: meeting.wait(20) and None
    assert set(observe(opened, SITES).engines) == set(SITES)
