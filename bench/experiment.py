"""One experiment: its raw rows on disk as they come, and its result as one JSON file.

Every run of an experiment is a row with a key. Rows are written to `bench/raw/<name>.jsonl`,
synced, as soon as they are measured, so that an experiment that was cut short goes on where it
was: a row with the same key, measured under the same settings by the same product code, is not
measured again; delete the rows after a change of the experiment itself.
`bench/results/<name>.json` is made of the rows at the end; `make results` makes docs/results.md of
those files.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.common import RAW, RESULTS, end_well_when_told, find_code, is_quick, provenance, say
from speck.model.values import JsonObject

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Check:
    """One claim: what was wanted, what was measured, whether it holds. `ok` None: not judged,
    `note` says why. `always`: it must hold in a trial (QUICK=1) too, as that nothing is lost;
    other claims are not judged there."""

    name: str
    wanted: str
    measured: object
    ok: bool | None
    note: str = ""
    always: bool = False


class Experiment:
    """Raw rows of one experiment, kept over its end.

    `settings` is all that a row depends on: rows measured under others are not used. QUICK=1
    keeps raw rows and result apart (`<name>-quick`), so that a trial never replaces a figure.
    """

    def __init__(self, name: str, settings: JsonObject, *, simulated: Sequence[str] = ()) -> None:
        """`simulated`: sentences that name the simulated parts."""
        self.name = f"{name}-quick" if is_quick() else name
        self.settings = settings
        self._simulated = list(simulated)
        end_well_when_told()
        self._started = time.time()
        self._code = find_code()
        text = json.dumps([settings, self._code], sort_keys=True, default=str)
        self._version = hashlib.sha256(text.encode()).hexdigest()[:12]
        self._path = RAW / f"{self.name}.jsonl"
        self._rows = {row["key"]: row for row in self._read() if row["version"] == self._version}
        self._before_s = sum(row.get("row_s", 0.0) for row in self._rows.values())

    @property
    def rows(self) -> list[JsonObject]:
        """All rows in the order in which they were measured: `{key, at, version, row_s,
        **measured}`; `row_s`: how long it took."""
        return list(self._rows.values())

    def row(self, key: str, measure: Callable[[], JsonObject]) -> JsonObject:
        """The row of `key`: measured now unless it is there."""
        if key in self._rows:
            say(f"{self.name} {key}: measured before")
            return self._rows[key]
        say(f"{self.name} {key}")
        began = time.time()
        values = measure()
        about = {"at": round(began, 3), "version": self._version}
        row = {"key": key, **about, "row_s": round(time.time() - began, 1), **values}
        RAW.mkdir(exist_ok=True)
        with self._path.open("a+") as file:
            file.write(_line_end(self._path) + json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._rows[key] = row
        return row

    def finish(
        self,
        summary: JsonObject,
        checks: Iterable[Check],
        *,
        more: JsonObject | None = None,
        rows: Sequence[JsonObject] | None = None,
    ) -> int:
        """Write the result; the exit status: 0 only when no check fails. `more`: further keys of
        it; `rows`: those that it holds, if not all."""
        verdicts = [_relax_for_trial(check) if is_quick() else check for check in checks]
        origin = provenance(self._started)
        origin["seconds"] = round(origin["seconds"] + self._before_s, 1)  # in all lives together
        content = {
            "experiment": self.name,
            **origin,
            "code": self._code,
            "settings": self.settings,
            "simulated": self._simulated,
            "summary": summary,
            **(more or {}),
            "checks": [asdict(check) for check in verdicts],
        }
        folder = RAW if is_quick() else RESULTS
        folder.mkdir(exist_ok=True)
        whole = folder / f"{self.name}.json"
        part = whole.with_suffix(".part")
        part.write_text(_text(content, self.rows if rows is None else rows))
        part.replace(whole)  # never half a result, whenever it is cut
        for check in verdicts:
            mark = {True: "ok", False: "NOT", None: "--"}[check.ok]
            say(
                f"{mark:4}{check.name}: wanted {check.wanted}, measured {check.measured}"
                f" {check.note}"
            )
        return 1 if any(check.ok is False for check in verdicts) else 0

    def _read(self) -> list[JsonObject]:
        """Rows that are whole; the last may have been cut off."""
        rows = []
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue
        return rows


def _text(content: JsonObject, rows: Sequence[JsonObject]) -> str:
    """The result as JSON, its `rows` one to a line: some hold thousands of numbers."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return json.dumps(content, indent=1).removesuffix("\n}") + f',\n "rows": [\n{lines}\n ]\n}}\n'


def _line_end(path: Path) -> str:
    """What ends the last line of a file, if that was cut off: what follows is a line of its own."""
    content = path.read_bytes()
    return "\n" if content and not content.endswith(b"\n") else ""


def _relax_for_trial(check: Check) -> Check:
    """Few and short runs prove no figure."""
    if check.always or check.ok is not False:
        return check
    return replace(check, ok=None, note=f"a trial: not judged. {check.note}".strip())


def interval(values: Sequence[float]) -> JsonObject:
    """`{n, mean, min, max, low, high}`: the mean's 95 % confidence interval by Student's t; its
    ends are null for fewer than two values, all but n for none."""
    from scipy import stats

    n = len(values)
    if n == 0:
        return {"n": 0, "mean": None, "min": None, "max": None, "low": None, "high": None}
    mean = sum(values) / n
    summary: dict[str, Any] = {"n": n, "mean": mean, "min": min(values), "max": max(values)}
    if n < 2:
        return {**summary, "low": None, "high": None}
    deviation = (sum((value - mean) ** 2 for value in values) / (n - 1)) ** 0.5
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * deviation / n**0.5
    return {**summary, "low": mean - half, "high": mean + half}


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` (0 to 1) of them lie, nearest rank; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]
