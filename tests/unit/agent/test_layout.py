"""The agent finds states by the description of an engine that it has never heard of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speck.agent.folder import StateFolder, StateMissingError, open_files
from speck.agent.layout import StateLayout, StatePlace
from speck.errors import PermanentError

JOB = "ab" * 16
IN_PLACE = StateLayout((StatePlace("runs/{job}"),), ("commits/#", "out/#/numbers"))
"""One folder for each run, which goes on in place: a step is over once it is committed, or once
what it sends is decided."""


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    (tmp_path / "state").mkdir()
    return StateFolder(tmp_path / "state")


def test_a_state_that_goes_on_in_one_folder_has_the_number_of_its_newest_step(
    folder: StateFolder,
) -> None:
    run = write(
        folder.root / "runs" / JOB, "offsets/10", "commits/2", "commits/9", "commits/.9.crc"
    )
    (state,) = folder.states(JOB, IN_PLACE)
    assert (state.folder, state.number, state.on_request) == (run, 9, False)
    write(run, "out/10/part-0", "out/10/numbers")
    assert folder.state(f"file://{run}", IN_PLACE).number == 10
    with open_files(folder.state(str(run), IN_PLACE), IN_PLACE) as files:
        names = [name for name, _ in files.names]
    assert {"offsets/10", "commits/9", "out/10/part-0"} <= set(names)


def test_a_run_without_a_step_has_no_state(folder: StateFolder) -> None:
    run = write(folder.root / "runs" / JOB, "offsets/0", "out/0/part-0", "commits/x")
    assert folder.states(JOB, IN_PLACE) == []
    with pytest.raises(StateMissingError):
        folder.state(str(run), IN_PLACE)


def test_it_is_dropped_as_a_whole_and_nothing_else_is(folder: StateFolder) -> None:
    run = write(folder.root / "runs" / JOB, "commits/1")
    other = write(folder.root / "runs" / ("cd" * 16), "commits/1")
    folder.drop(f"file://{run}", IN_PLACE)
    folder.drop(f"file://{run}", IN_PLACE)
    assert (run.exists(), other.exists()) == (False, True)
    with pytest.raises(PermanentError, match="not a state below"):
        folder.drop(str(write(folder.root / "checkpoints" / JOB, "commits/1")), IN_PLACE)


@pytest.mark.parametrize(
    "change",
    [
        {"places": []},
        {"places": [{"pattern": "../{job}"}]},
        {"places": [{"pattern": "/etc/{job}"}]},
        {"places": [{"pattern": "runs//{job}"}]},
        {"places": "runs"},
        {"proofs": []},
        {"proofs": ["../x"]},
        {"proofs": [7]},
        {"magic": "no hex"},
        {"foreign": "("},
        {"more": True},
    ],
)
def test_a_description_that_leads_elsewhere_is_refused(change: dict[str, Any]) -> None:
    assert StateLayout.from_json(IN_PLACE.to_json()) == IN_PLACE
    with pytest.raises(PermanentError, match="cannot use this description of an engine's states"):
        StateLayout.from_json({**IN_PLACE.to_json(), **change})
    with pytest.raises(PermanentError, match="update the agent"):
        StateLayout.from_json(None)
