"""Following a change, over a service that restarts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from speck.cli import follow
from speck.cli.messages import CommandFailed
from speck.cli.output import Grid
from speck.client import Client, NoServerError


def operation(number: int, state: str, error: str | None = None) -> dict[str, Any]:
    return {
        "id": number,
        "kind": "start",
        "job_name": f"j{number}",
        "site": "edge-a",
        "state": state,
        "error": error,
    }


def change(state: str, *operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "c1", "state": state, "operations": list(operations), "error": None, **more}


class Told(Client):
    """Answers in order; an exception is raised."""

    def __init__(self, *answers: Any):
        super().__init__()
        self._answers: Iterator[Any] = iter(answers)

    def change(self, change_id: str) -> dict[str, Any]:
        answer = next(self._answers)
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, dict)
        return answer


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "growing", lambda: repeat(0.0))


def test_tells_each_outcome_once(capsys: pytest.CaptureFixture[str]) -> None:
    client = Told(
        change("running", operation(1, "running"), operation(2, "pending")),
        change("running", operation(1, "done"), operation(2, "running")),
        NoServerError("cannot reach it"),
        change("blocked", operation(1, "done"), operation(2, "blocked", "cannot reach edge-a")),
        change("done", operation(1, "done"), operation(2, "done")),
    )
    assert follow.follow(client, "c1")["state"] == "done"
    assert capsys.readouterr().err.splitlines() == [
        "start j1 on edge-a: done",
        "start j2 on edge-a: blocked: cannot reach edge-a",
        "start j2 on edge-a: done",
    ]


def test_gives_up_on_a_service_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_MAX_OUTAGE_S", 0.0)
    with pytest.raises(NoServerError):
        follow.follow(Told(NoServerError("cannot reach it")), "c1")


def test_ctrl_c_says_how_to_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        follow.follow(Told(KeyboardInterrupt()), "c1")
    assert "cancel it with `speck cancel c1`" in capsys.readouterr().err


def test_a_failure_lists_failed_then_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    failed = change(
        "failed", operation(1, "skipped"), operation(2, "failed", "cannot start"), error="why"
    )
    with pytest.raises(CommandFailed, match="cannot finish change c1 of x; fix the cause"):
        follow.follow(Told(failed), "c1")
        follow.require_done(failed, "x")
    assert capsys.readouterr().err.splitlines() == [
        "start j1 on edge-a: skipped",
        "start j2 on edge-a: failed",
        "  failed  start j2 on edge-a: cannot start",
        "  skipped  start j1 on edge-a",
    ]


def test_a_failure_without_a_failed_operation_tells_its_own_reason() -> None:
    with pytest.raises(CommandFailed, match="cannot finish change c1 of x: why; fix the cause"):
        follow.require_done(change("failed", error="why"), "x")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("running", "is still being changed"),
        ("blocked", "a site does not answer"),
        ("cancelled", "it was cancelled by change c2"),
    ],
)
def test_other_ends(state: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        follow.require_done(change(state, superseded_by="c2"), "x")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from rich.console import Console
    from rich.progress import Progress

    out = io.StringIO()
    with Progress(console=Console(file=out, force_terminal=True, width=120)) as progress:
        bar = follow._Bar(progress)
        states = ("failed", "running", "running", "running", "done")
        for _ in range(2):
            bar.update(change("running", *(operation(n, s) for n, s in enumerate(states))))
        task = progress.tasks[0]
        assert (task.completed, task.total) == (2, 5)
        assert task.description == "start j1 on edge-a, start j2 on edge-a and 1 more"
    assert out.getvalue().count("start j0 on edge-a: failed") == 1


def test_a_table_is_not_cut_where_no_terminal_is() -> None:
    long = "x" * 300
    assert str(Grid(("a", "b"), [(long, None), ("[red]y", True)])).splitlines() == [
        f"{'A':300}  B",
        f"{long}  -",
        f"{'[red]y':300}  yes",
    ]
