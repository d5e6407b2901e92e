"""Carries out tasks at sites, of which one that fails does not hold the others back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from speck.errors import SpeckError

LOG = logging.getLogger(__name__)

MOST_FAILURES = 3
"""After so many the others wait for the next run: at a broker that does not answer each of them
would take a time limit."""

Task = Callable[[], object]
TaskName = tuple[str, ...]


class Attempts:
    """Runs tasks in their order, but those that have failed behind the others, so that each has its
    turn however many fail. Tasks of one site are not run at the same time."""

    def __init__(self) -> None:
        self._runs = 0
        self._failed: dict[str, dict[TaskName, int]] = {}
        """The runs in which tasks have failed last, by site."""

    def run(self, site: str, tasks: Mapping[TaskName, Task]) -> None:
        """Run each task once, unless too many fail."""
        self._runs += 1
        known = self._failed.get(site, {})
        failed = {name: known[name] for name in tasks if name in known}
        self._failed[site] = failed
        failures = 0
        for name in sorted(tasks, key=lambda each: failed.get(each, 0)):
            if _succeeds(site, name, tasks[name]):
                failed.pop(name, None)
                continue
            failed[name] = self._runs
            failures += 1
            if failures == MOST_FAILURES:
                return


def _succeeds(site: str, name: TaskName, task: Task) -> bool:
    what = " ".join(name)
    try:
        task()
    except SpeckError as error:
        LOG.warning("cannot look after the sessions at %s (%s): %s", site, what, error)
        return False
    except Exception:
        LOG.exception("cannot look after the sessions at %s (%s)", site, what)
        return False
    return True
