"""`speck pub` and `speck sub`: records are sent to links and seen there."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from binders.memory import Message, World
from tests.unit.cli.conftest import Run


def published(topic: str) -> list[bytes]:
    broker = World.current().broker("tcp://edge-a.test:1883")
    return [message.payload for message in broker.published[topic]]


@pytest.mark.parametrize("direct", [(), ("--direct",)])
def test_given_records_are_sent_in_order(speck: Run, direct: tuple[str, ...]) -> None:
    done = speck("pub", "edge-a", "in", "one", "two", "--repeat", "2", *direct)
    assert done.exit_code == 0, done.output
    assert published("in") == [b"one", b"two", b"one", b"two"]
    assert "sent 4 records to edge-a/in" in done.stderr
    assert "4 of them found no reader on in at edge-a, and are lost" in done.stderr


def test_each_line_is_a_record(speck: Run, tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(1200)] + [b"", b"\xff"]
    file = tmp_path / "lines"
    file.write_bytes(b"\r\n".join(lines))
    assert speck("pub", "edge-a", "in", "-f", str(file)).exit_code == 0
    assert published("in") == lines
    done = speck("pub", "edge-a", "other", "-o", "json", "--rate", "10000", stdin="a\nb\n")
    assert json.loads(done.stdout) == {"site": "edge-a", "topic": "other", "sent": 2, "unread": 2}
    assert published("other") == [b"a", b"b"]


def test_large_records_are_sent_in_several_requests(speck: Run, tmp_path: Path) -> None:
    lines = [b"x" * 50_000 for _ in range(40)]  # as JSON in base64 2.7 MB
    file = tmp_path / "lines"
    file.write_bytes(b"\n".join(lines))
    done = speck("pub", "edge-a", "in", "-f", str(file))
    assert done.exit_code == 0, done.output
    assert published("in") == lines


def test_what_cannot_be_sent_is_said(speck: Run, tmp_path: Path) -> None:
    for arguments, says in (
        (("nowhere", "in", "x"), "cannot find site 'nowhere'"),
        (("edge-a", "a/#", "x"), "holds a wildcard"),
        (("edge-a", "in", "x", "--credentials", "file"), "--credentials is for --direct"),
        (("edge-a", "in", "x", "-f", __file__), "give RECORDs or --file, not both"),
    ):
        done = speck("pub", *arguments)
        assert done.exit_code == 1
        assert says in done.stderr


@pytest.mark.parametrize("direct", [(), ("--direct",)])
def test_records_of_a_link_are_shown(speck: Run, direct: tuple[str, ...]) -> None:
    broker = World.current().broker("tcp://edge-a.test:1883")
    ended = threading.Event()

    def publish() -> None:
        number = 0
        while not ended.wait(0.02):
            number += 1
            broker.publish("out", Message(b"\x1b[2J", "sink", 1, number))
            broker.publish("out", Message(b"\xff"))

    sender = threading.Thread(target=publish)
    sender.start()
    try:
        shown = speck("sub", "edge-a", "out", "--max", "2", "--seconds", "30", "--stamps", *direct)
        assert shown.exit_code == 0, shown.output
        lines = shown.stdout.splitlines()
        assert len(lines) == 2
        assert any(line.startswith("sink/1/") for line in lines)
        assert any(line == "-  base64:/w==" for line in lines)
        assert "\x1b" not in shown.stdout
    finally:
        ended.set()
        sender.join()


def test_a_quiet_link_shows_nothing(speck: Run) -> None:
    done = speck("sub", "edge-a", "out", "--seconds", "0.1", "-o", "json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer == {"site": "edge-a", "topic": "out", "complete": True, "records": []}
    refused = speck("sub", "edge-a", "out", "--seconds", "61")
    assert "use --direct to follow" in refused.stderr
    refused = speck("sub", "edge-a", "out", "--max", "1001")
    assert "use --direct for more" in refused.stderr


def test_both_are_in_the_audit_log(speck: Run) -> None:
    speck("pub", "edge-a", "in", "x")
    speck("sub", "edge-a", "in", "--seconds", "0.1")
    logged = speck("audit", "tail").stdout
    assert "POST /links/edge-a/in  200" in logged
    assert "GET /links/edge-a/in  200" in logged


def test_a_lone_dash_is_stdin_and_bytes_of_an_argument_are_sent_as_they_are(speck: Run) -> None:
    assert speck("pub", "edge-a", "in", "-", stdin="a\nb\n").exit_code == 0
    assert published("in") == [b"a", b"b"]
    assert speck("pub", "edge-a", "odd", "a\udcff").exit_code == 0  # as Python reads argv
    assert published("odd") == [b"a\xff"]


def test_what_cannot_be_read_is_named_and_not_waited_for(speck: Run) -> None:
    done = speck("pub", "edge-a", "in", "-f", "/proc/self/mem")
    assert done.exit_code == 1
    assert "cannot read the records: Input/output error" in done.stderr


def test_a_stdin_without_end_is_read_as_it_is_sent(speck: Run) -> None:
    """Of a line that never ends, and of lines that never end, only a part is in memory."""
    with open("/dev/zero", "rb") as zeros:
        done = speck("pub", "edge-a", "in", stdin=zeros)
    assert done.exit_code == 1
    assert "cannot send a line of more than 1048576 bytes" in done.stderr


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_are_finite(speck: Run, number: str) -> None:
    for args in (
        ("pub", "edge-a", "in", "x", f"--rate={number}"),
        ("sub", "edge-a", "in", f"--seconds={number}"),
        ("advise", "chain", f"--timeout={number}"),
        ("place", "chain", f"--utilisation={number}"),
        ("top", f"--every={number}"),
        ("replay", "file", f"--speed={number}"),
        ("site", "update", "edge-a", f"--uplink-mbps={number}"),
    ):
        done = speck(*args)
        assert done.exit_code == 1
        assert "Invalid value for" in done.stderr, done.stderr
