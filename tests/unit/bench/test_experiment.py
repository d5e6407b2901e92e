"""An experiment's rows and result on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import common, experiment
from bench.experiment import Check, Experiment


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "end_well_when_told", lambda: None)
    for module in (common, experiment):
        monkeypatch.setattr(module, "RAW", tmp_path / "raw")
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.delenv("QUICK", raising=False)


def slow(ok: bool = False) -> Check:
    return Check("seconds", "<= 1", 2.0, ok, "slow")


def test_it_goes_on_where_it_was_cut_short() -> None:
    keys: list[str] = []

    def measure(key: str) -> dict[str, object]:
        keys.append(key)
        return {"value": key}

    first = Experiment("speed", {"size": 1})
    first.row("a", lambda: measure("a"))
    again = Experiment("speed", {"size": 1})
    assert [again.row(key, lambda key=key: measure(key))["value"] for key in "ab"] == ["a", "b"]
    other = Experiment("speed", {"size": 2})
    other.row("a", lambda: measure("other"))
    assert keys == ["a", "b", "other"]


def test_a_failed_check_is_an_exit_status_and_is_kept(tmp_path: Path) -> None:
    assert Experiment("speed", {}, simulated=["Time."]).finish({"s": 2}, [slow()]) == 1
    result = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert result["checks"][0]["ok"] is False
    assert (result["summary"], result["simulated"], result["quick"]) == ({"s": 2}, ["Time."], False)
    assert {"cores", "system", "python", "flink", "java", "mosquitto"} <= set(result["machine"])
    assert Experiment("speed", {}).finish({}, [slow(ok=True)]) == 0


def test_a_result_may_have_further_keys_and_hold_some_of_its_rows(tmp_path: Path) -> None:
    speed = Experiment("speed", {})
    rows = [speed.row(key, lambda: {"value": 1}) for key in ("shown", "kept")]
    speed.finish({}, [], more={"ratio": 0.9}, rows=rows[:1])
    result = json.loads((tmp_path / "results" / "speed.json").read_text())
    assert (result["ratio"], [row["key"] for row in result["rows"]]) == (0.9, ["shown"])


def test_a_trial_judges_only_what_always_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICK", "1")
    assert Experiment("speed", {}).finish({}, [slow(), Check("lost", "0", 0, True)]) == 0
    result = json.loads((tmp_path / "raw" / "speed-quick.json").read_text())
    assert [(it["ok"], it["note"]) for it in result["checks"]] == [
        (None, "a trial: not judged. slow"),
        (True, ""),
    ]
    lost = Check("lost", "0", 3, False, always=True)
    assert Experiment("speed", {}).finish({}, [slow(), lost]) == 1
    assert not (tmp_path / "results" / "speed.json").exists()


def test_a_trial_of_an_older_experiment_never_replaces_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = common.write_result("speed.json", {"rate": 5})
    assert file == tmp_path / "results" / "speed.json"
    monkeypatch.setenv("QUICK", "1")
    assert common.write_result("speed.json", {"rate": 1}) == tmp_path / "raw" / "speed-quick.json"
    assert json.loads(file.read_text())["rate"] == 5


def test_a_row_after_one_that_was_cut_off_is_kept(tmp_path: Path) -> None:
    Experiment("speed", {}).row("a", dict)
    file = tmp_path / "raw" / "speed.jsonl"
    file.write_text(file.read_text() + '{"key": "b", "at')
    Experiment("speed", {}).row("b", lambda: {"value": 1})
    assert [row["key"] for row in Experiment("speed", {}).rows] == ["a", "b"]


def test_a_result_names_the_code_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "find_code", lambda: "then")
    first = Experiment("speed", {})
    monkeypatch.setattr(experiment, "find_code", lambda: "now")
    first.finish({}, [])
    assert json.loads((tmp_path / "results" / "speed.json").read_text())["code"] == "then"


def test_a_result_that_is_cut_off_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Experiment("speed", {}).finish({"value": 1}, [])
    write = Path.write_text

    def cut_off(path: Path, text: str) -> None:
        write(path, text[:20])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", cut_off)
        with pytest.raises(KeyboardInterrupt):
            Experiment("speed", {}).finish({"value": 2}, [])
    file = tmp_path / "results" / "speed.json"
    assert json.loads(file.read_text())["summary"] == {"value": 1}


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT"])
def test_one_that_is_told_to_end_takes_down_what_it_started(how: str) -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as in the background of a script
        "from bench.experiment import Experiment\n"
        "Experiment('speed', {})\n"
        "try:\n"
        f"    os.kill(os.getpid(), signal.{how})\n"
        "    time.sleep(5)\n"
        "    print('went on')\n"
        "finally:\n"
        "    print('taken down')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == "taken down\n"


def test_the_rows_of_a_result_take_a_line_each(tmp_path: Path) -> None:
    experiment = Experiment("speed", {})
    for key in "ab":
        experiment.row(key, lambda: {"values": list(range(100))})
    experiment.finish({}, [])
    text = (tmp_path / "results" / "speed.json").read_text()
    assert json.loads(text)["rows"] == experiment.rows
    assert sum('"values"' in line for line in text.splitlines()) == 2
    Experiment("nothing", {}).finish({}, [])
    assert json.loads((tmp_path / "results" / "nothing.json").read_text())["rows"] == []


def test_its_time_is_that_of_all_its_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(experiment.time, "time", lambda: now[0])

    def measure() -> dict[str, object]:
        now[0] += 60
        return {}

    Experiment("speed", {}).row("a", measure)
    now[0] += 5000  # until it is begun again
    again = Experiment("speed", {})
    again.row("a", measure)
    again.row("b", measure)
    again.finish({}, [])
    assert json.loads((tmp_path / "results" / "speed.json").read_text())["seconds"] == 120.0
