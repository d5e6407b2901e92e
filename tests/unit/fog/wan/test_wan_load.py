from __future__ import annotations

from pathlib import Path

import pytest

from speck.errors import InvalidError, PermanentError
from speck.fog.wan import Uplink, Wan, load_wan
from speck.fog.wan.model import check_wan

EXAMPLE = Path("compositions/traffic/wan.yaml")


def written(folder: Path, text: str) -> Path:
    path = folder / "wan.yaml"
    path.write_text(text)
    return path


def test_the_example_puts_two_edges_18_6_ms_apart() -> None:
    wan = load_wan(EXAMPLE)
    check_wan(wan, ["edge-a", "edge-b", "edge-c", "cloud"])
    assert wan.latency_ms("edge-a", "edge-b") == 18.6
    assert wan.latency_ms("cloud", "edge-c") == 9.3
    assert wan.uplink("edge-a") == Uplink(2, 10, 9.3)
    assert wan.uplink("cloud") == Uplink()


def test_lans_and_a_host(tmp_path: Path) -> None:
    text = "uplinks: {a: {latency_ms: 5}, b: {latency_ms: 7}}\nlans: [[a, b]]\nhost: c\n"
    wan = load_wan(written(tmp_path, text))
    assert wan == Wan({"a": Uplink(latency_ms=5), "b": Uplink(latency_ms=7)}, (("a", "b"),), "c")
    assert wan.latency_ms("a", "b") == 0
    assert wan.latency_ms("a", "c") == 5
    assert wan.peers("b") == ("a",)
    assert wan.peers("c") == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "document (line 1): must be a mapping with `uplinks`"),
        ("uplinks: {}", "uplinks (line 1): must be a mapping from a site"),
        ("uplinks:\n  a: 3", "uplinks.a (line 2): must be a mapping with up_mbps"),
        ("uplinks:\n  a:\n    up_mbps: -1", "uplinks.a.up_mbps (line 3): must be a number of Mb/s"),
        ("uplinks:\n  a: {down_mbps: '2'}", "uplinks.a.down_mbps (line 2): must be a number"),
        ("uplinks:\n  a: {up_mbps: true}", "uplinks.a.up_mbps (line 2): must be a number"),
        ("uplinks:\n  a: {latency_ms: -0.1}", "uplinks.a.latency_ms (line 2): must be a number"),
        ("uplinks:\n  a: {latency_ms: null}", "uplinks.a.latency_ms (line 2): must be a number"),
        ("uplinks:\n  a: {delay: 3}", "uplinks.a.delay (line 2): unknown; an uplink has up_mbps"),
        ("uplinks:\n  '-x': {}", "uplinks.-x (line 2): is not the name of a site"),
        ("uplinks: {a: {}}\nlan: []", "lan (line 2): unknown; a WAN has uplinks, lans, host"),
        ("uplinks: {a: {}}\nlans: [[a]]", "lans[0] (line 2): must be a list of two sites or more"),
        ("uplinks: {a: {}}\nlans:\n- [a, b]\n- [c, a]", "lans[1][1] (line 4): a is in a LAN"),
        ("uplinks: {a: {}}\nhost: 3", "host (line 2): must be `everywhere` or the name of a site"),
    ],
)
def test_faults_are_told_with_path_and_line(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InvalidError) as error:
        load_wan(written(tmp_path, text))
    assert [str(problem).startswith(fault) for problem in error.value.problems] == [True], (
        error.value.problems
    )
    assert str(error.value).startswith("cannot use the WAN ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"^cannot read the WAN .*: No such file"):
        load_wan(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("wan", "message"),
    [
        (Wan({"edge-q": Uplink()}), "cannot give edge-q a place in the WAN: this fog has a, b"),
        (Wan(lans=(("a", "c"),)), "cannot give c a place"),
        (Wan(host="c"), "cannot give c a place"),
        (Wan(lans=(("a", "b"), ("b",))), "cannot put b into two LANs"),
        (Wan({"a": Uplink(up_mbps=0)}), "cannot shape the uplink of a: up_mbps 0 must be"),
        (Wan({"a": Uplink(down_mbps=float("nan"))}), "down_mbps nan must be"),
        (Wan({"a": Uplink(latency_ms=-1)}), "latency_ms -1 must be 0 to 10000"),
    ],
)
def test_a_wan_that_does_not_fit_the_fog(wan: Wan, message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        check_wan(wan, ["a", "b"])
