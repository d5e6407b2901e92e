"""`schedulercfg`: the file that tells flink-placement, a fork of Flink, where tasks run.

The fork splits the text at line breaks and each line at the two characters "; ". The first part is
the name of a subtask, `Task name (i/n)` with i from 1 to n, as in Flink itself; the second is the
IP address of a TaskManager. There are no comments, no empty lines and no ports; a subtask without a
line gets any slot. This module rejects text that the fork would misread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from speck.errors import PermanentError
from speck.model.values import JsonObject
from speck.placement.model import Placement

_SEPARATOR = "; "
_SUBTASK = re.compile(r"(?P<task>.+) \((?P<number>\d+)/(?P<of>\d+)\)")


@dataclass(frozen=True, slots=True)
class Subtask:
    """Subtask `number` of `of` (from 1) of a task, and the IP address of its TaskManager."""

    task: str
    number: int
    of: int
    address: str

    def __str__(self) -> str:
        return f"{self.task} ({self.number}/{self.of}){_SEPARATOR}{self.address}"


@dataclass(frozen=True, slots=True)
class Task:
    """A vertex of a Flink job; a chain of operators is one."""

    name: str
    parallelism: int


def tasks_of(job: JsonObject) -> tuple[Task, ...]:
    """The tasks of a Flink job. `job`: the engine's response to `GET /jobs/<id>`."""
    return tuple(Task(vertex["name"], vertex["parallelism"]) for vertex in job["vertices"])


def dump(subtasks: Iterable[Subtask]) -> str:
    """Write subtasks as the file's text, in their order, without a line break at the end.

    Raises PermanentError if the fork would misread the text.
    """
    text = "\n".join(map(str, subtasks))
    load(text)
    return text


def load(text: str) -> tuple[Subtask, ...]:
    """Parse subtasks, in the order of their lines. As in the fork, a final line break is ignored.

    Raises PermanentError, which names the line and the remedy, for a line that the fork would
    misread, a subtask that is placed twice, or a task with two parallelisms.
    """
    parsed: dict[tuple[str, int], tuple[int, Subtask]] = {}
    parallelisms: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), 1):
        subtask = _parse(number, line)
        first, parallelism = parallelisms.setdefault(subtask.task, (number, subtask.of))
        if parallelism != subtask.of:
            raise _fault(number, f"{subtask.task!r} has {parallelism} subtasks in line {first}")
        key = (subtask.task, subtask.number)
        if key in parsed:
            raise _fault(number, f"line {parsed[key][0]} places the same subtask; delete one")
        parsed[key] = (number, subtask)
    return tuple(subtask for _, subtask in parsed.values())


def from_placement(
    placement: Placement,
    tasks: Mapping[str, Sequence[Task]],
    addresses: Mapping[str, Sequence[str]],
) -> tuple[Subtask, ...]:
    """Distribute the subtasks of the placed jobs round-robin over the TaskManagers of their sites.

    `tasks`: the tasks of each job (see `tasks_of`); `addresses`: IP addresses of TaskManagers by
    site. Raises PermanentError for a site without TaskManagers.
    """
    subtasks: list[Subtask] = []
    counts: dict[str, int] = {}
    for job_name, job_tasks in tasks.items():
        site = placement.sites[job_name]
        if not addresses.get(site):
            raise PermanentError(
                f"cannot write {job_name} to a schedulercfg: site {site} has no TaskManager address"
            )
        for task in job_tasks:
            for number in range(1, task.parallelism + 1):
                index = counts.get(site, 0)
                counts[site] = index + 1
                address = addresses[site][index % len(addresses[site])]
                subtasks.append(Subtask(task.name, number, task.parallelism, address))
    return tuple(subtasks)


def _parse(number: int, line: str) -> Subtask:
    if not line:
        raise _fault(number, "delete the empty line; the fork has none")
    parts = line.split(_SEPARATOR)
    match = _SUBTASK.fullmatch(parts[0])
    if len(parts) != 2 or match is None:
        raise _fault(
            number,
            "write it as 'Task name (i/n); IP address', with '; ' once and without a comment:"
            f" {line!r}",
        )
    if not 1 <= int(match["number"]) <= int(match["of"]):
        raise _fault(number, f"i of '(i/n)' goes from 1 to n: {line!r}")
    if not _is_ip_address(parts[1]):
        raise _fault(number, f"write the IP address of a TaskManager, without a port: {parts[1]!r}")
    return Subtask(match["task"], int(match["number"]), int(match["of"]), parts[1])


def _is_ip_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _fault(number: int, remedy: str) -> PermanentError:
    return PermanentError(f"cannot use as a schedulercfg, line {number}: {remedy}")
