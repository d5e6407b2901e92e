"""status, jobs, job, events, sites, artifacts, tokens, backup and restore."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import stat
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
import yaml

from speck.binding import JobException
from speck.cli.commands.top import fit
from speck.cli.output import Grid
from speck.client import Content
from speck.errors import UnreachableError
from speck.spec.site_schema import site_from_data
from speck.store.audit_log import read_entries
from speck.store.backup import write_backup
from speck.store.leveldb import Store
from tests.calibrating import count_units, make_job_jar
from tests.memory_fog import jar_bytes, site_body
from tests.service_helpers import engine
from tests.unit.cli.conftest import Run, Server
from tests.waiting import wait_for


@pytest.fixture
def deployed(speck: Run, chain: str) -> Run:
    assert speck("apply", "-y", chain).exit_code == 0
    return speck


def test_status(deployed: Run) -> None:
    output = deployed("status").stdout
    assert "edge-a  edge   up" in output
    assert "chain  1         1         2     2 running" in output
    assert "clean  chain        edge-a  running  1        raw     clean" in output
    one = json.loads(deployed("status", "chain", "-o", "json").stdout)
    assert [site["name"] for site in one["sites"]] == ["cloud", "edge-a"]
    assert [job["job_name"] for job in one["jobs"]] == ["clean", "keep"]
    assert deployed("status", "nothing").exit_code == 1


def test_jobs_are_filtered(deployed: Run) -> None:
    jobs = yaml.safe_load(deployed("jobs", "--site", "cloud", "-o", "yaml").stdout)
    assert [job["job_name"] for job in jobs["jobs"]] == ["keep"]
    assert deployed("jobs", "--state", "failed").stdout == "no jobs\n"
    wrong = deployed("jobs", "--state", "happy")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: --state must be one of pending,")
    problem = json.loads(deployed("jobs", "--state", "happy", "-o", "json").stderr)
    assert problem["error"].startswith("--state must be one of")


def test_top(deployed: Run, server: Server) -> None:
    output = deployed("top", "--once").stdout
    assert "clean  chain        edge-a  -     -" in output, "nothing was collected yet"
    sampler = server.service.sampler
    latest = sampler.latest
    sampler.poll()
    wait_for(
        lambda: all(map(latest.engine, ("edge-a", "cloud"))) and len(latest.list_links()) >= 4,
        "measures",
    )
    rates = json.loads(deployed("top", "chain", "-o", "json").stdout)["jobs"]
    assert {job["job_name"]: job["records_in"] for job in rates} == {"clean": 0, "keep": 0}


def test_top_on_a_terminal_ends_with_q(deployed: Run, server: Server) -> None:
    own, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 3, 100, 0, 0))
    command = [sys.executable, "-m", "speck.cli", "--server", server.url, "top", "--every", "60"]
    # pytest's own readline sets them, and so hides the terminal's size
    environment = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")}
    top = subprocess.Popen(command, stdin=terminal, stdout=terminal, env=environment)
    try:
        os.close(terminal)
        output = b""
        while b"... and 2 more" not in output:
            assert select.select([own], [], [], 20)[0], output
            output += os.read(own, 1000)
        os.write(own, b"q")
        assert top.wait(20) == 0
    finally:
        top.kill()
        top.wait()
        os.close(own)


@pytest.mark.parametrize(
    ("columns", "headings"),
    [("60", "NAME COMPOSITION SITE STATE"), ("40", "NAME SITE STATE"), ("24", "NAME STATE")],
)
def test_columns_are_left_out_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, headings: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    row = ("temperature-filter", "traffic-of-bologna", "edge-north", "running")
    grid = Grid(
        ("name", "composition", "site", "state"), [row], dispensable=("composition", "site")
    )
    lines = [line.split() for line in click.unstyle(str(grid)).splitlines()]
    assert lines[0] == headings.split()
    assert {"temperature-filter", "running"} <= set(lines[1])


@pytest.mark.parametrize(
    ("skipped", "first", "footer"),
    [
        (-1, "job-0", "... and 95 more"),
        (0, "job-0", "... and 95 more"),
        (10, "job-10", "... 10 above, 85 below"),
        (1000, "job-95", "... 95 above, 0 below"),
    ],
)
def test_top_keeps_its_headings_and_scrolls(
    monkeypatch: pytest.MonkeyPatch, skipped: int, first: str, footer: str
) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "100")
    text = "\n".join(["NAME", *(f"job-{n}" for n in range(100))])
    shown = fit(text, skipped)[1].splitlines()
    assert len(shown) == 7, "a line is left for the cursor"
    assert (shown[0], shown[1], shown[-1]) == ("NAME", first, footer)


def test_no_word_of_usual_length_breaks_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    cells = ("temperature-filter", "edge-north", "what happened is told here")
    drawing = str(Grid(("name", "site", "error"), [cells]))
    for word in " ".join(cells).split():
        assert word in drawing


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("top", "Chian"), "cannot find composition 'Chian'; did you mean chain?"),
        (("events", "--job", "kep"), "cannot find job 'kep'; did you mean keep?"),
        (("events", "nothing"), "cannot find composition 'nothing'; known: chain"),
        (("jobs", "--site", "Cloud"), "cannot find site 'Cloud'; did you mean cloud?"),
    ],
)
def test_an_unknown_name_is_an_error(deployed: Run, command: tuple[str, ...], hint: str) -> None:
    result = deployed(*command)
    assert result.exit_code == 1
    assert result.stderr == f"error: {hint}\n"


def test_job(deployed: Run) -> None:
    output = " ".join(deployed("job", "keep").stdout.split())
    assert "state running" in output
    assert "source_topic clean" in output
    assert "exceptions" in json.loads(deployed("job", "keep", "-o", "json").stdout)
    missing = deployed("job", "nothing")
    assert missing.stderr == "error: cannot find job 'nothing'; known: clean, keep\n"


def test_alike_exceptions_of_a_job_are_shown_once(deployed: Run) -> None:
    failures = [JobException(at, "Boom", "boom\nat x", "source") for at in (61_000, 1000)]
    (run,) = engine("cloud").running()
    run.exceptions[:] = failures
    output = deployed("job", "keep").stdout
    assert "  2 times, last 1970-01-01T00:01:01Z in source: Boom\n    boom\n    at x\n" in output
    data = json.loads(deployed("job", "keep", "-o", "json").stdout)["exceptions"]
    assert [each["at"] for each in data] == ["1970-01-01T00:01:01.000Z", "1970-01-01T00:00:01.000Z"]


def test_events(deployed: Run) -> None:
    lines = deployed("events", "chain").stdout.splitlines()
    assert lines[-1].endswith("change of chain done")
    assert len(deployed("events", "-n", "2").stdout.splitlines()) == 2
    events = json.loads(deployed("events", "--job", "keep", "-o", "json").stdout)["events"]
    assert {event["job_name"] for event in events} == {"keep"}
    after = json.loads(deployed("events", "-o", "json").stdout)["events"][-1]["id"]
    assert deployed("events", "--after", str(after)).stdout == ""


def test_events_follow_through_pages_and_a_restart(
    deployed: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = server.service.records
    looks, here, really = 0, threading.current_thread(), time.sleep

    def sleep(seconds: float) -> None:
        nonlocal looks
        if threading.current_thread() is not here:
            return really(seconds)
        looks += 1
        if looks > 1:
            raise KeyboardInterrupt
        for number in range(1100):
            records.write(records.events.make("test", f"thing {number} \x1b[31m"))

    monkeypatch.setattr(time, "sleep", sleep)
    result = deployed("events", "-f", "-n", "0")
    assert result.exit_code == 130
    lines = result.stdout.splitlines()
    assert len(lines) == 1100
    assert lines[-1].endswith("thing 1099 \N{REPLACEMENT CHARACTER}[31m")


def test_sites(speck: Run, tmp_path: Path) -> None:
    file = tmp_path / "more.json"
    file.write_text(json.dumps([site_body("edge-c"), site_body("edge-d")]))
    result = speck("site", "add", "-f", str(file))
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "site edge-c registered\nsite edge-d registered\n"
    assert speck("site", "add", "-f", str(file)).stderr.startswith(
        "site edge-c was registered already"
    )
    assert "edge-d" in speck("site", "list").stdout
    assert "memory http://edge-c.test:8081" in speck("site", "show", "edge-c").stdout
    assert speck("site", "remove", "edge-c", "--yes").exit_code == 0
    assert speck("site", "show", "edge-c").exit_code == 1


def test_sites_are_calibrated(speck: Run, server: Server) -> None:
    make_job_jar(server.service)
    count_units(server.service, {"cloud": 0.4, "edge-a": 1.6, "edge-b": 0.8})
    assert "core_speed" not in speck("site", "show", "edge-a").stdout
    result = speck("site", "calibrate", "-o", "json")
    assert result.exit_code == 0, result.stderr
    core_speeds = [
        (row["name"], row["core_speed"]) for row in json.loads(result.stdout)["calibrations"]
    ]
    assert core_speeds == [("cloud", 1.0), ("edge-a", 0.25), ("edge-b", 0.5)]
    assert "core speed" in speck("site", "show", "edge-a").stdout
    table = speck("site", "calibrate", "cloud").stdout
    assert "cloud  0.2    1" in table
    assert "other programs used CPU of cloud" in result.stderr
    assert "of cloud, edge-a" not in result.stderr
    assert speck("site", "calibrate", "nowhere").exit_code == 1
    assert "SPECK_JARS" in speck("site", "calibrate", "cloud", "--jar", "no.jar").stderr


@pytest.mark.parametrize("command", [("site", "add"), ("agent",)])
def test_the_kinds_that_are_left_out_are_said(speck: Run, command: tuple[str, ...]) -> None:
    text = " ".join(speck(*command, "--help").stdout.split())
    addresses = {"spe": {"address": "http://a:8081"}, "broker": {"address": "tcp://a:1883"}}
    left_out = site_from_data({"name": "a", "tier": "edge", **addresses})
    assert f"--engine-kind KIND Left out: {left_out.spe.kind}." in text
    assert f"--broker-kind KIND Left out: {left_out.broker.kind}." in text


def test_a_site_by_its_addresses(speck: Run) -> None:
    options = (
        *("site", "add", "edge-z", "--engine", "http://z:8081", "--engine-kind", "memory"),
        *("--broker", "tcp://z", "--broker-kind", "memory", "--uplink-mbps", "10"),
        *("--label", "room=4", "-o", "json"),
    )
    result = speck(*options)
    assert result.exit_code == 0, result.stderr
    (site,) = json.loads(result.stdout)["sites"]
    assert (site["tier"], site["uplink_mbps"], site["labels"]) == ("edge", 10, {"room": "4"})
    added = speck(*options, "--tier", "cloud")
    assert "change it (speck site update" in added.stderr
    assert speck(*options, "--tier", "cloud", "--replace").exit_code == 0
    wrong = speck("site", "add", "Edge y", "--engine", "foo", "--broker", "tcp://y")
    assert wrong.exit_code == 1
    assert wrong.stderr.startswith("error: NAME: 'Edge y' is not a name:")
    assert "; --engine: 'foo' is not an address like http://host:8081" in wrong.stderr
    assert speck("site", "add", "edge-y").exit_code == 1
    assert speck("site", "add", "edge-y", "--label", "x").exit_code == 1
    assert speck("site", "add").exit_code == 1


def test_site_check_fails_on_errors_only(speck: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = speck("site", "check")
    assert checked.exit_code == 0
    assert "warning: engine TLS: http://edge-a.test:8081 is plain" in checked.stdout
    assert "note: service TLS: http://127.0.0.1" in checked.stdout
    finding = {
        "part": "broker",
        "severity": "warning",
        "setting": "persistence",
        "value": "false",
        "why": "queues are lost",
        "mend": "persistence true",
    }
    answer = {"name": "edge-a", "ok": True, "findings": [finding]}
    monkeypatch.setattr("speck.client.Client.check_site", lambda *_: answer)
    warned = speck("site", "check", "edge-a")
    assert warned.exit_code == 0
    assert warned.stdout.splitlines() == [
        "edge-a:",
        "  warning: broker persistence: false; queues are lost",
        "    mend: persistence true",
    ]
    finding["severity"] = "error"
    assert speck("site", "check", "edge-a").exit_code == 1


def test_artifacts(speck: Run, tmp_path: Path) -> None:
    jar = tmp_path / "job.jar"
    jar.write_bytes(jar_bytes(b"x" * 3_000_000))
    result = speck("artifacts", "push", str(jar))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("artifact:")
    assert result.stderr == f"sent {jar.stat().st_size} bytes\n"
    assert speck("artifacts", "push", str(jar)).stderr == "the service has it already\n"
    assert result.stdout.strip() in speck("artifacts", "list").stdout
    assert speck("artifacts", "push", "nothing.jar").exit_code == 1
    collected = speck("artifacts", "gc")
    assert (collected.exit_code, collected.stdout) == (0, "nothing to delete\n"), "it is new"
    assert f"kept: 1 artifacts with {jar.stat().st_size} bytes" in collected.stderr
    removed = speck("artifacts", "remove", result.stdout.strip())
    assert (removed.exit_code, removed.stdout) == (0, result.stdout)
    assert speck("artifacts", "remove", result.stdout.strip()).exit_code == 1


def test_tokens_over_http(speck: Run, tmp_path: Path) -> None:
    result = speck("token", "add", "boss", "--role", "admin")
    assert result.exit_code == 0, result.stderr
    secret = result.stdout.strip()
    result = speck("jobs")
    assert result.exit_code == 1
    assert "(here: by SPECK_TOKEN or --token-file)" in result.stderr
    assert speck("jobs", SPECK_TOKEN=secret).exit_code == 0
    (tmp_path / "secret").write_text(f"{secret}\n")
    assert speck("jobs", "--token-file", "secret").exit_code == 0
    assert speck("jobs", "--token-file", "none").exit_code == 1
    assert "boss  admin" in speck("token", "list", SPECK_TOKEN=secret).stdout
    assert "--open" in speck("token", "remove", "boss", SPECK_TOKEN=secret).stderr
    assert speck("token", "remove", "boss", "--open", SPECK_TOKEN=secret).exit_code == 0
    assert speck("jobs").exit_code == 0


def test_a_limited_token_over_http(speck: Run) -> None:
    admin = {"SPECK_TOKEN": speck("token", "add", "boss", "--role", "admin").stdout.strip()}
    scopes = ["--compositions", "traffic*", "--topics", "traffic/#", "--sites", "edge-*"]
    scopes += ["--sites", "cloud", "--expires", "90d"]
    made = speck("token", "add", "team", "--role", "deployer", *scopes, **admin)
    team = {"SPECK_TOKEN": made.stdout.strip()}
    own = json.loads(speck("token", "self", "-o", "json", **team).stdout)
    assert (own["compositions"], own["topics"]) == (["traffic*"], ["traffic/#"])
    assert own["sites"] == ["edge-*", "cloud"] and own["expires"] > own["at"]
    shown = "compositions traffic*; topics traffic/#; sites edge-* cloud"
    assert shown in speck("token", "list", **admin).stdout
    assert shown in speck("token", "self", **team).stdout
    rotated = speck("token", "rotate", "team", **admin).stdout.strip()
    for secret in (made.stdout.strip(), rotated):
        assert speck("jobs", SPECK_TOKEN=secret).exit_code == 0
    assert speck("token", "rotate", "nobody", **admin).exit_code == 1


def test_the_audit_log_over_http_and_in_the_files(speck: Run, server: Server) -> None:
    home = str(server.service.config.home)
    assert speck("site", "remove", "edge-b", "--yes").exit_code == 0
    assert speck("token", "remove", "nobody").exit_code == 1
    tail = speck("audit", "tail")
    assert "local" not in tail.stdout and "-@127.0.0.1  DELETE /sites/edge-b  204" in tail.stdout
    assert "DELETE /tokens/nobody  404" in tail.stdout
    assert (
        speck("audit", "tail", "-n", "1", "--home", home).stdout
        == tail.stdout.splitlines(keepends=True)[-1]
    )
    verdict = json.loads(speck("audit", "verify", "--home", home, "-o", "json").stdout)
    assert verdict["ok"] and verdict["lines"] == 2
    noted = verdict["last_hash"]
    assert speck("audit", "verify", "--home", home, "--contains", noted).exit_code == 0
    other = speck("audit", "verify", "--home", home, "--contains", "0" * 64)
    assert other.exit_code == 1 and "lines were cut off" in other.stdout


def test_the_first_token_needs_no_service(alone: Run, tmp_path: Path) -> None:
    result = alone("token", "add", "boss", "--role", "admin")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("speck_")
    assert len(result.stdout.splitlines()) == 1
    assert "boss" in alone("token", "list").stdout
    assert "boss" in alone("token", "list", "--home", str(tmp_path / "offline")).stdout
    assert alone("token", "rotate", "boss").stdout.startswith("speck_")
    assert alone("token", "remove", "boss").exit_code == 1
    assert alone("token", "remove", "boss", "--open").exit_code == 0
    assert alone("token", "list").stdout == "no tokens\n"
    recorded = alone("audit", "tail", "--home", str(tmp_path / "offline")).stdout.splitlines()
    assert [line.split("  ")[1:] for line in recorded] == [
        ["local@-", "speck add token boss /tokens", "done"],
        ["local@-", "speck rotate token boss /tokens", "done"],
        ["local@-", "speck remove token boss /tokens", "refused"],
        ["local@-", "speck remove token boss /tokens", "done"],
    ]
    assert alone("token", "add", "site", "--role", "site").exit_code == 1


def test_a_far_service_is_never_replaced_by_the_store_here(alone: Run, tmp_path: Path) -> None:
    result = alone("token", "add", "x", "--role", "admin", SPECK_SERVER="http://speck.invalid:1")
    assert result.exit_code == 1
    assert "is the address right?" in result.stderr
    assert not (tmp_path / "offline").exists()


def test_a_store_in_use_is_left_alone(speck: Run, server: Server) -> None:
    home = str(server.service.config.home)
    result = speck("token", "add", "x", "--role", "admin", "--home", home)
    assert result.exit_code == 1
    assert "another speck holds it" in result.stderr


def test_backup_and_restore(deployed: Run, alone: Run, tmp_path: Path) -> None:
    result = deployed("backup", "saved.gz")
    assert result.exit_code == 0, result.stderr
    saved = tmp_path / "saved.gz"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert deployed("backup", "-").stdout_bytes[:2] == saved.read_bytes()[:2]
    assert deployed("backup", "no/such/folder/x").exit_code == 1
    restored = alone("restore", "saved.gz", "--home", str(tmp_path / "new"))
    assert restored.exit_code == 0, restored.stderr
    store = Store.open(tmp_path / "new" / "store")
    assert store.get("head/chain") is not None
    store.close()
    assert alone("restore", "saved.gz", "--home", str(tmp_path / "new")).exit_code == 1
    (done,) = read_entries(tmp_path / "new" / "audit")
    assert (done["verb"], done["outcome"], done["file"]) == ("speck restore", "done", str(saved))
    assert alone("restore", "nothing.gz").exit_code == 1


def test_a_restore_says_that_removed_tokens_are_valid_again(
    deployed: Run, alone: Run, tmp_path: Path
) -> None:
    home = str(tmp_path / "new")
    deployed("backup", "open.gz")
    assert "tokens" not in alone("restore", "open.gz", "--home", home).stderr
    alone("token", "add", "root", "--role", "admin", "--home", home)
    store = Store.open(tmp_path / "new" / "store")
    (tmp_path / "saved.gz").write_bytes(b"".join(write_backup(store, datetime.now(UTC))))
    store.close()
    later = str(tmp_path / "later")
    said = alone("restore", "saved.gz", "--home", later).stderr
    assert "the tokens (1) are as they were at 20" in said
    assert f"see `speck token list --home {later}`" in said


def test_a_backup_is_verified_and_names_changes_under_way(
    deployed: Run, alone: Run, chain: str, tmp_path: Path
) -> None:
    assert deployed("backup", "calm.gz").stderr.count("under way") == 0
    engine("cloud").unreachable = True
    Path(chain).write_text(Path(chain).read_text().replace("keep", "hold"))
    applied = deployed("apply", "-y", "--no-wait", chain)
    assert applied.exit_code == 0, applied.stderr
    under_way = "of chain (apply) was under way when the backup was taken"
    assert under_way in deployed("backup", "saved.gz").stderr
    verified = alone("backup", "--verify", "saved.gz")
    assert verified.exit_code == 0, verified.stderr
    assert "saved.gz is complete:" in verified.stderr
    assert "3 site" in verified.stderr
    assert under_way in verified.stderr
    restored = alone("restore", "saved.gz", "--home", str(tmp_path / "new"))
    assert under_way in restored.stderr
    engine("cloud").unreachable = False
    content = bytearray((tmp_path / "saved.gz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "bad.gz").write_bytes(content)
    damaged = alone("backup", "--verify", "bad.gz")
    assert damaged.exit_code == 1
    assert "it is damaged or incomplete: line " in damaged.stderr


def test_a_cut_backup_leaves_no_file(
    speck: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut() -> Iterator[bytes]:
        yield b"half"
        raise UnreachableError("cannot read the whole backup: cut")

    monkeypatch.setattr("speck.client.Client.backup", lambda _: Content(8, cut()))
    assert speck("backup", "saved.gz").exit_code == 1
    assert not list(tmp_path.glob("*saved.gz*"))
