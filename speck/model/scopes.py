"""What a token is limited to, beside its role: compositions, topics and sites.

Pure matching of names against patterns; `speck.service.access_policy` decides with it about what is
stored. The patterns are speck's own, also those of topics (docs/tokens.md): a token holds for
brokers of all kinds, and a kind that is installed later must not change what it may see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from speck.errors import Problem
from speck.model.values import JsonObject

MOST_PATTERNS = 100
"""How many patterns a token may have in one dimension."""
_LONGEST = 256
_GLOB = re.compile(r"[A-Za-z0-9._*?\[\]!-]+")

Patterns = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Scopes:
    """Patterns in each dimension; None in a dimension without a limit.

    `compositions` and `sites` are globs as in `fnmatch`, matched against whole names with regard
    to case; `topics` are patterns as `topic_matches` has them. A job that was posted alone counts
    as a composition of its own name.
    """

    compositions: Patterns = None
    topics: Patterns = None
    sites: Patterns = None

    @property
    def limited(self) -> bool:
        """Whether there is a limit in any dimension."""
        return (self.compositions, self.topics, self.sites) != (None, None, None)

    def has_composition(self, name: str) -> bool:
        """Whether a composition, or a job posted alone, of this name may lie inside."""
        return _matches_glob(name, self.compositions)

    def has_site(self, name: str) -> bool:
        """Whether a site lies inside."""
        return _matches_glob(name, self.sites)

    def has_topic(self, topic: str) -> bool:
        """Whether a topic lies inside."""
        return self.topics is None or any(topic_matches(topic, pattern) for pattern in self.topics)

    def to_json(self) -> dict[str, list[str] | None]:
        """`{compositions, topics, sites}`, each a list, or null without a limit."""
        return {name: None if p is None else list(p) for name, p in self._dimensions().items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Iterable[str] | None]) -> Scopes:
        """The inverse of `to_json`; an absent dimension has no limit."""
        values = {name: data.get(name) for name in DIMENSIONS}
        return cls(**{name: None if p is None else tuple(p) for name, p in values.items()})

    def find_problems(self) -> list[Problem]:
        """What is wrong with the patterns, by path like `topics[1]`."""
        problems = []
        for name, patterns in self._dimensions().items():
            if patterns is None:
                continue
            if not 1 <= len(patterns) <= MOST_PATTERNS:
                fault = f"must hold 1 to {MOST_PATTERNS} patterns; leave it out for no limit"
                problems.append(Problem(name, fault))
            check = _find_topic_fault if name == "topics" else _find_glob_fault
            for index, pattern in enumerate(patterns[:MOST_PATTERNS]):
                if (why := check(pattern)) is not None:
                    problems.append(Problem(f"{name}[{index}]", why))
        return problems

    def _dimensions(self) -> dict[str, Patterns]:
        return {name: getattr(self, name) for name in DIMENSIONS}


DIMENSIONS = ("compositions", "topics", "sites")
"""The dimensions in which a token may be limited."""

UNLIMITED = Scopes()


def topic_matches(topic: str, pattern: str) -> bool:
    """Whether a topic of any broker fits a pattern of a token's, with regard to case.

    Levels lie between slashes; a topic without any, as some kinds of brokers have them, is one
    level. `+` stands for one level, `#` at the end for any number of levels, its parent included.
    Neither stands for a first level that begins with `$`: brokers publish about themselves there.
    """
    levels, patterns = topic.split("/"), pattern.split("/")
    if topic.startswith("$") and patterns[0] in ("+", "#"):
        return False
    for index, level in enumerate(patterns):
        if level == "#":
            return True
        if index >= len(levels) or level not in ("+", levels[index]):
            return False
    return len(levels) == len(patterns)


def describe(scopes: JsonObject) -> str:
    """Scopes in one line, as lists of tokens show them; empty without a limit."""
    parts = [f"{name} {' '.join(scopes[name])}" for name in DIMENSIONS if scopes.get(name)]
    return "; ".join(parts)


def _matches_glob(name: str, patterns: Patterns) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)


def _find_glob_fault(pattern: str) -> str | None:
    if len(pattern) > _LONGEST or not _GLOB.fullmatch(pattern):
        return f"{pattern[:40]!r} is no pattern of names: letters, digits, . _ - and * ? [ ]"
    return None


def _find_topic_fault(pattern: str) -> str | None:
    levels = pattern.split("/")
    wild = [level for level in levels if "+" in level or "#" in level]
    if not pattern or len(pattern) > _LONGEST or "\0" in pattern:
        return f"must have 1 to {_LONGEST} characters"
    if any(level not in ("+", "#") for level in wild) or "#" in levels[:-1]:
        return f"{pattern[:40]!r} is no pattern of topics: + stands for a level, # for the rest"
    return None
