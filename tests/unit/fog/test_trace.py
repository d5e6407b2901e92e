"""Traces of detections are read row by row, whatever the rows hold."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from speck.errors import InvalidError, NotFoundError
from speck.fog.trace import OWN_HEADER, PLAIN_HEADER, Detection, parse_detection, read_trace

GOOD = "28800.29,A1-03,v12,13.20,4.5,car"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_row_is_parsed_to_the_millisecond() -> None:
    assert parse_detection(GOOD) == Detection(28_800_290, "A1-03", "v12", 13.2, 4.5, "car")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "28800.29,A1-03,v12,13.20,car",
        GOOD + ",more",
        "28800.29,,v12,13.20,4.5,car",
        "28800.29,A1-03,v12,fast,4.5,car",
        "28800.29,A1-03,v12,nan,4.5,car",
        "28800.29,A1-03,v12,inf,4.5,car",
        "28800.29,A1-03,v12,1_0,4.5,car",
        "2880\\x00#~",
        "28800.29,A1-\udcff,v12,13.20,4.5,car",
    ],
)
def test_what_is_no_detection_is_none(text: str) -> None:
    assert parse_detection(text) is None


@pytest.mark.parametrize(
    ("columns", "possible"),
    [
        ("0,s,v,70,30,car", True),
        ("0,s,v,70.01,30,car", False),
        ("0,s,v,0,30,car", False),
        ("0,s,v,-3,30,car", False),
        ("0,s,v,900,30,car", False),
        ("0,s,v,70,30.1,car", False),
        ("0,s,v,70,0,car", False),
        ("-1,s,v,70,30,car", False),
        ("1e99,s,v,70,30,car", False),
    ],
)
def test_the_impossible_is_told_from_the_possible(columns: str, possible: bool) -> None:
    detection = parse_detection(columns)
    assert detection is not None
    assert detection.possible is possible


def test_our_own_format_keeps_malformed_rows_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb") as file:
        file.write(f"{OWN_HEADER}\r\nA1,{GOOD}\r\nA1,28\xff,#~\n\n".encode("latin-1"))
    rows = read_trace(path)
    assert [row.stream for row in rows] == ["A1", "A1"]
    assert rows[0].raw == GOOD
    assert rows[1].raw.encode("utf-8", "surrogateescape") == b"28\xff,#~"
    assert [row.valid for row in rows] == [True, False]


def test_the_plain_format_finds_streams_by_the_longest_prefix(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", PLAIN_HEADER, "1,s12,v,9,4,car", "2,s2,v,9,4,car", "broken")
    rows = read_trace(path, {"s": "A1", "s1": "A2", "": "C4"})
    assert [row.stream for row in rows] == ["A2", "A1", "C4"]


def test_a_plain_row_without_stream_is_named_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", PLAIN_HEADER, "1,s1,v,9,4,car", "2,x,v,9,4,car")
    with pytest.raises(InvalidError, match=r"stream of line 3 .*no stream is mapped to sensor 'x'"):
        read_trace(path, {"s": "A1"})


def test_a_row_of_ours_without_stream_is_named_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", OWN_HEADER, "broken")
    with pytest.raises(InvalidError, match="cannot find the stream of line 2"):
        read_trace(path)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"cannot read the trace .*no such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InvalidError, match="its first line must be"):
        read_trace(write(tmp_path / "t.csv", "a,b"))
    with pytest.raises(InvalidError, match="cannot read the trace"):
        read_trace(write(tmp_path / "t.csv.gz", "not gzip"))
