"""Compares jobs: two are the same if an incarnation would be started with the same values.

Artifacts are compared by content, links by the names of their sites. An incarnation has the
addresses of its brokers in its arguments, so these are compared, too; a new address of its engine
restarts nothing. Options that restart nothing (`state`, `pinned`, ...) only control what speck does
with a job, so they are not compared; nor is the order of jobs in a composition.
"""

from __future__ import annotations

from speck.model.job import OPTIONS, Job

_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.restarts)


def differences(old: Job, new: Job) -> list[str]:
    """Describe what changed from `old` to `new`; empty exactly if they are the same."""
    changes = []
    if old.site != new.site:
        changes.append(f"site {old.site} -> {new.site}")
    if old.source != new.source:
        changes.append(
            f"source {old.source_site}/{old.source.topic} -> {new.source_site}/{new.source.topic}"
        )
    if old.port != new.port:
        changes.append(f"sink {', '.join(map(str, old.port))} -> {', '.join(map(str, new.port))}")
    changes += [f"the broker of {site} has a new address" for site in find_moved_brokers(old, new)]
    if old.artifact != new.artifact:
        changes.append(f"artifact {old.artifact[:8]} -> {new.artifact[:8]}")
    if old.entry_class != new.entry_class:
        changes.append(f"entry_class {old.entry_class} -> {new.entry_class}")
    for name in _OPTIONS:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            brief = isinstance(after, int | str)
            changes.append(f"{name} {before} -> {after}" if brief else f"{name} changed")
    return changes


def find_moved_brokers(old: Job, new: Job) -> list[str]:
    """The sites of brokers that have another address for `new` than for `old`."""
    before = {old.source_site: old.source_broker, old.sink_site: old.sink_broker}
    now = {new.source_site: new.source_broker, new.sink_site: new.sink_broker}
    return sorted(site for site in before.keys() & now.keys() if before[site] != now[site])
