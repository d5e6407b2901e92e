"""`schedulercfg`: the file by which flink-placement, a fork of Flink, is told where tasks run.

A line a subtask: `Task name (i/n); TaskManager-address`, with i from 1 to n. Empty lines and lines
that begin with `#` are passed over. What is written by `dump` is read by `load` as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from speck.errors import PermanentError
from speck.placement.model import Kind, Load, Placement

_LINE = re.compile(r"(?P<task>.*\S) \((?P<number>\d+)/(?P<of>\d+)\)\s*;\s*(?P<address>\S+)")


@dataclass(frozen=True, slots=True)
class Subtask:
    """Subtask `number` of `of` (from 1) of a task, and the address of its TaskManager."""

    task: str
    number: int
    of: int
    address: str

    def __str__(self) -> str:
        return f"{self.task} ({self.number}/{self.of}); {self.address}"


def dump(subtasks: Iterable[Subtask]) -> str:
    """The file's text, in the order given.

    Raises PermanentError for what `load` would refuse, or read otherwise.
    """
    lines = []
    for subtask in subtasks:
        line = str(subtask)
        if _parse(line) != subtask:
            raise PermanentError(
                f"cannot write {line!r} to a schedulercfg: a task neither begins with # nor begins "
                f"or ends with a space, an address holds no space or ';', none a line break"
            )
        lines.append(line + "\n")
    text = "".join(lines)
    load(text)
    return text


def load(text: str) -> tuple[Subtask, ...]:
    """Subtasks in the order of their lines.

    Raises PermanentError that names the line and the mend: one that is not of the form, a subtask
    given twice, one that is missing, or a task of two parallelisms.
    """
    found: dict[tuple[str, int], tuple[int, Subtask]] = {}
    widths: dict[str, tuple[int, int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        subtask = _parse(line.rstrip())
        if subtask is None:
            raise _fault(number, f"write it as 'Task name (i/n); address', not as {line!r}")
        if not 1 <= subtask.number <= subtask.of:
            raise _fault(number, f"i of '(i/n)' goes from 1 to n: {line!r}")
        first, width = widths.setdefault(subtask.task, (number, subtask.of))
        if width != subtask.of:
            raise _fault(number, f"{subtask.task!r} has {width} subtasks in line {first}")
        key = (subtask.task, subtask.number)
        if key in found:
            raise _fault(number, f"line {found[key][0]} places the same subtask; delete one")
        found[key] = (number, subtask)
    for task, (first, width) in widths.items():
        missing = [n for n in range(1, width + 1) if (task, n) not in found]
        if missing:
            raise _fault(first, f"add a line for {task!r} ({missing[0]}/{width}): it has none")
    return tuple(subtask for _, subtask in found.values())


def of_placement(
    placement: Placement, loads: Sequence[Load], addresses: Mapping[str, Sequence[str]]
) -> tuple[Subtask, ...]:
    """Subtasks of the jobs of a placement: each job's slots go round its site's TaskManagers.

    `addresses`: of TaskManagers, by site. Raises PermanentError for a site without any.
    """
    found: list[Subtask] = []
    turns: dict[str, int] = {}
    for load in loads:
        if load.kind is not Kind.JOB:
            continue
        site = placement.sites[load.name]
        if not addresses.get(site):
            raise PermanentError(
                f"cannot write {load.name} to a schedulercfg: no TaskManager of {site} is given"
            )
        for number in range(1, load.slots + 1):
            turn = turns.get(site, 0)
            turns[site] = turn + 1
            address = addresses[site][turn % len(addresses[site])]
            found.append(Subtask(load.name, number, load.slots, address))
    return tuple(found)


def _parse(line: str) -> Subtask | None:
    match = _LINE.fullmatch(line)
    if match is None or line.startswith("#") or line != line.strip() or ";" in match["address"]:
        return None
    return Subtask(match["task"], int(match["number"]), int(match["of"]), match["address"])


def _fault(number: int, mend: str) -> PermanentError:
    return PermanentError(f"cannot read a schedulercfg, line {number}: {mend}")
