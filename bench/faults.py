"""Runs the fault suite and writes what came of each fault.

`make bench-faults` writes bench/results/faults.json and the table of docs/guarantees.md. With
arguments of pytest (`-k broker`) only those faults run, and the others keep the figures they have.
QUICK=1 tries one fault.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.common import RESULTS, is_quick, machine, say, write_result
from speck.model.values import JsonObject

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
QUICK = "start-request"
OVERFLOW = "broker's queue full"
"""The fault whose loss is expected; see docs/guarantees.md."""


def table(rows: Sequence[JsonObject]) -> str:
    """The rows as Markdown."""
    lines = [
        "| fault | delivery | expected | published | lost | repeated | two copies | recovery |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        recovery = "" if row["recovery_s"] is None else f"{row['recovery_s']} s"
        lines.append(
            f"| {row['fault']} | {row['delivery']} | {row['expected']} | {row['published']} |"
            f" {row['lost']} | {row['repeated']} | {row['two_copies']} | {recovery} |"
        )
    return "\n".join(lines)


def with_table(page: str, rows: Sequence[JsonObject]) -> str:
    """The page with its table replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{after}"


def run(arguments: Sequence[str]) -> tuple[int, list[JsonObject]]:
    """pytest's exit code and the rows that the tests wrote."""
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        file = Path(folder) / "rows"
        file.touch()
        env = {**os.environ, "SPECK_FAULTS_FILE": str(file)}
        command = [sys.executable, "-m", "pytest", "tests/faults", "-m", "long or not long"]
        arguments = ["-p", "no:cacheprovider", *arguments]
        tests = subprocess.Popen([*command, *arguments], cwd=ROOT, env=env, stdout=sys.stderr)
        try:
            code = tests.wait()
        except KeyboardInterrupt:  # the fog must be taken down, and what was measured kept
            tests.send_signal(signal.SIGINT)
            code = tests.wait()
        return code, [json.loads(line) for line in file.read_text().splitlines()]


def merge_results(old: Sequence[JsonObject], new: Sequence[JsonObject]) -> list[JsonObject]:
    """The old rows with those replaced that were measured again, in the order of their names."""
    by_key = {(row["fault"], row["delivery"]): row for row in (*old, *new)}
    return [by_key[key] for key in sorted(by_key)]


def result(rows: Sequence[JsonObject]) -> JsonObject:
    """The content of faults.json."""
    unexpected = [row for row in rows if row["fault"] != OVERFLOW]
    return {
        "published": sum(row["published"] for row in rows),
        "lost": sum(row["lost"] for row in unexpected),
        "expected_loss": sum(row["lost"] for row in rows if row["fault"] == OVERFLOW),
        "repeated": sum(row["repeated"] for row in rows if row["delivery"] == "exactly_once"),
        "two_copies": sum(row["two_copies"] for row in rows),
        "faults": list(rows),
        "machine": machine(),
    }


def main() -> None:
    file = RESULTS / "faults.json"
    if is_quick():
        code, rows = run(["-k", QUICK])
        write_result(file.name, result(rows))
        sys.exit(code)
    code, rows = run(sys.argv[1:])
    if sys.argv[1:] and file.exists():
        rows = merge_results(json.loads(file.read_text())["faults"], rows)
    write_result(file.name, result(merge_results([], rows)))
    PAGE.write_text(with_table(PAGE.read_text(), merge_results([], rows)))
    say(f"wrote {file} and the table of {PAGE}")
    sys.exit(code)


if __name__ == "__main__":
    main()
