from __future__ import annotations

from pathlib import Path

import pytest

from bench.instruments import crossing
from bench.instruments.crossing import Connection, Crossings, parse_connections
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog, ProcessStatus, SiteStatus
from speck.fog.state import FogState, StateFile

EDGE, CLOUD = "127.1.1.1:1883", "127.1.1.2:1883"


def line(local: str, peer: str, pid: int, acked: int, received: int) -> str:
    return (
        f'0      0      {local}      {peer} users:(("java",pid={pid},fd=9)) bbr rto:204'
        f" bytes_sent:{acked + 7} bytes_acked:{acked} bytes_received:{received} segs_out:3"
    )


def test_what_ss_tells() -> None:
    output = "\n".join(
        [
            line("127.0.0.1:4000", EDGE, 11, 300, 20),
            f"0 0 127.0.0.1:4001 {EDGE} bbr bytes_acked:5",  # of a process that is not ours
            f'0 0 127.0.0.1:4002 {EDGE} users:(("java",pid=11,fd=9)) bbr rto:204',  # nothing yet
            "",
            # a socket of Java's, which can do IPv6 too
            line("[::ffff:127.0.0.1]:4003", f"[::ffff:{EDGE.replace(':', ']:')}", 21, 1, 2),
        ]
    )
    assert parse_connections(output) == [
        Connection("127.0.0.1:4000", EDGE, 11, 300, 20),
        Connection("127.0.0.1:4002", EDGE, 11, 0, 0),
        Connection("127.0.0.1:4003", EDGE, 21, 1, 2),
    ]


@pytest.fixture
def fog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fog:
    """edge-a (engine 11, broker 12) and cloud (engine 21) that never run."""
    sites = (
        SiteRecord("edge-a", "edge", "127.1.1.1", 1883, 8081, 8),
        SiteRecord("cloud", "cloud", "127.1.1.2", 1883, 8081, 8),
    )
    StateFile(tmp_path).save(FogState("single", 1.0, None, sites))

    def status(_: Fog) -> list[SiteStatus]:
        edge = (ProcessStatus("engine", 11, True, 1.0), ProcessStatus("broker", 12, True, 1.0))
        cloud = (ProcessStatus("engine", 21, True, 1.0),)
        return [
            SiteStatus("edge-a", "edge", "", "", edge, 8, 8),
            SiteStatus("cloud", "cloud", "", "", cloud, 8, 8),
        ]

    monkeypatch.setattr(Fog, "status", status)
    return Fog(tmp_path)


def test_only_what_an_engine_exchanges_with_another_sites_broker(
    fog: Fog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        line("127.0.0.1:1", EDGE, 21, 10, 1000),  # the cloud's engine reads at the edge
        line("127.0.0.1:2", EDGE, 11, 10, 500),  # the edge's own
        line("127.0.0.1:3", CLOUD, 11, 200, 5),  # the edge's engine sends to the cloud
        line("127.0.0.1:4", EDGE, 99, 10, 500),  # a publisher
        line(EDGE, "127.0.0.1:1", 12, 1000, 10),  # the other end of the first
    ]
    monkeypatch.setattr(crossing, "_list_connections", lambda: "\n".join(lines))
    crossings = Crossings(fog)
    assert crossings.poll() == {("cloud", "edge-a"): 1010, ("edge-a", "cloud"): 205}
    # the first one closes, and another takes its place
    lines[0] = line("127.0.0.1:9", EDGE, 21, 1, 2)
    assert crossings.poll() == {("cloud", "edge-a"): 1013, ("edge-a", "cloud"): 205}
