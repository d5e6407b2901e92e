"""When a dead process of a fog is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speck.fog.supervision import RESTART_DELAY_S, RestartPolicy

ENGINE = ("edge-a", "engine")
BROKER = ("edge-a", "broker")


def test_a_dead_process_is_restarted_after_two_seconds() -> None:
    policy = RestartPolicy()
    assert policy.sites_to_restart([], 0.0) == []
    assert policy.sites_to_restart([ENGINE], 10.0) == []
    assert policy.sites_to_restart([ENGINE], 11.9) == []
    assert policy.sites_to_restart([ENGINE], 12.0) == ["edge-a"]


def test_a_process_that_came_back_meanwhile_is_left_alone() -> None:
    policy = RestartPolicy()
    policy.sites_to_restart([ENGINE], 10.0)
    assert policy.sites_to_restart([], 11.0) == []
    assert policy.sites_to_restart([ENGINE], 12.5) == []


def test_a_site_with_two_dead_processes_is_started_once() -> None:
    policy = RestartPolicy()
    policy.sites_to_restart([ENGINE, BROKER], 10.0)
    assert policy.sites_to_restart([ENGINE, BROKER], 12.0) == ["edge-a"]


def test_the_delay_doubles_while_a_process_keeps_dying() -> None:
    policy = RestartPolicy()
    restarts = [tick / 4 for tick in range(4 * 300) if policy.sites_to_restart([ENGINE], tick / 4)]
    assert restarts == [2.0, 6.0, 14.0, 30.0, 62.0, 122.0, 182.0, 242.0]


def test_the_delay_is_short_again_after_a_minute_of_life() -> None:
    policy = RestartPolicy()
    for now in (0.0, 2.0):
        policy.sites_to_restart([ENGINE], now)
    policy.sites_to_restart([], 2.5)
    policy.sites_to_restart([ENGINE], 70.0)
    assert policy.sites_to_restart([ENGINE], 72.0) == ["edge-a"]


@given(st.lists(st.sets(st.sampled_from([ENGINE, BROKER, ("cloud", "agent")])), max_size=80))
def test_nothing_is_restarted_that_was_not_dead_for_two_seconds(looks: list[set]) -> None:
    policy = RestartPolicy()
    dead_since: dict[tuple[str, str], float] = {}
    for number, dead in enumerate(looks):
        now = number / 2
        dead_since = {key: dead_since.get(key, now) for key in dead}
        for site in policy.sites_to_restart(dead, now):
            longest = max(now - dead_since[key] for key in dead if key[0] == site)
            assert longest >= RESTART_DELAY_S
