"""Scopes of tokens: globs and patterns of topics."""

from __future__ import annotations

import pytest

from speck import binding
from speck.model.scopes import MOST_PATTERNS, UNLIMITED, Scopes, describe, topic_matches
from tests.third_party_kinds import third_party


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("traffic/#", "traffic/a", True),
        ("traffic/#", "traffic/a/b", True),
        ("traffic/#", "traffic", True),
        ("traffic/#", "traffic2/a", False),
        ("traffic/#", "other/traffic/a", False),
        ("traffic/+", "traffic/a", True),
        ("traffic/+", "traffic/a/b", False),
        ("traffic/+", "traffic", False),
        ("+/a", "traffic/a", True),
        ("+/a", "/a", True),
        ("#", "anything/at/all", True),
        ("#", "$SYS/broker", False),
        ("+/broker", "$SYS/broker", False),
        ("$SYS/#", "$SYS/broker", True),
        ("T-1", "T-1", True),
        ("T-1", "t-1", False),
        ("T-1", "T-1/", False),
        ("T-1", "T-12", False),
        ("a/*", "a/b", False),
        ("traffic.raw", "traffic.raw", True),
        ("traffic.#", "traffic.raw", False),
        ("+", "traffic.raw", True),
        ("#", "traffic.raw", True),
    ],
)
def test_topics_match_by_levels(pattern: str, topic: str, matches: bool) -> None:
    assert topic_matches(topic, pattern) is matches


def test_names_match_as_in_fnmatch_with_regard_to_case() -> None:
    scopes = Scopes(compositions=("traffic*", "a?"), sites=("edge-[ab]",))
    assert [
        scopes.has_composition(n) for n in ("traffic", "traffic-2", "Traffic", "ab", "abc")
    ] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert [scopes.has_site(n) for n in ("edge-a", "edge-c", "xedge-a")] == [True, False, False]
    assert scopes.has_topic("anything") and scopes.limited


def test_without_patterns_there_is_no_limit() -> None:
    assert not UNLIMITED.limited
    assert UNLIMITED.has_composition("x") and UNLIMITED.has_site("x") and UNLIMITED.has_topic("x")
    assert Scopes.from_json({}) == UNLIMITED


def test_scopes_are_read_back() -> None:
    scopes = Scopes(compositions=("a*",), topics=("t/#", "+/x"))
    assert Scopes.from_json(scopes.to_json()) == scopes
    assert describe(scopes.to_json()) == "compositions a*; topics t/# +/x"


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        (Scopes(compositions=()), "compositions"),
        (Scopes(sites=("a",) * (MOST_PATTERNS + 1)), "sites"),
        (Scopes(compositions=("a b",)), "compositions[0]"),
        (Scopes(sites=("a", "")), "sites[1]"),
        (Scopes(sites=("a" * 300,)), "sites[0]"),
        (Scopes(topics=("",)), "topics[0]"),
        (Scopes(topics=("a/#/b",)), "topics[0]"),
        (Scopes(topics=("a#",)), "topics[0]"),
        (Scopes(topics=("a+/b",)), "topics[0]"),
        (Scopes(topics=("a\0b",)), "topics[0]"),
    ],
)
def test_what_is_no_pattern_is_named(scopes: Scopes, path: str) -> None:
    assert [problem.path for problem in scopes.find_problems()] == [path]


@pytest.mark.parametrize(
    "topic", ["traffic/a", "traffic/a/b", "traffic", "$own/a", "/a", "a//b", "traffic.raw"]
)
@pytest.mark.parametrize(
    "pattern", ["traffic/#", "traffic/+", "#", "+", "+/a", "$own/#", "/+", "a/+/b", "traffic.raw"]
)
def test_what_a_token_may_see_is_the_same_at_brokers_of_all_kinds(topic: str, pattern: str) -> None:
    """The language is that of MQTT's filters; a kind with another one changes nothing about it."""
    inside = Scopes(topics=(pattern,)).has_topic(topic)
    assert inside is binding.topic_matches("mqtt", topic, pattern)
    with third_party():
        assert not binding.topic_matches("canal", topic, pattern) or topic == pattern
        assert Scopes(topics=(pattern,)).has_topic(topic) is inside
