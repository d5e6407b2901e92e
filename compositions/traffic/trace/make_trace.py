"""Makes trace.csv.gz with Eclipse SUMO: vehicles that pass sensors in a town of our own.

    pip install 'speck[sumo]'
    python compositions/traffic/trace/make_trace.py

The same SUMO version and seed give the same bytes. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
NETWORK = HERE / "network"
HEADER = "stream,time_s,sensor_id,vehicle_id,speed_mps,length_m,vehicle_type"
STREAMS = {"A": ("A1", "A2", "A3"), "B": ("B1", "B2", "B3"), "C": ("C1", "C2", "C3", "C4")}
# Each site watches two columns of the grid; netgenerate names a junction column letter + row.
COLUMNS = {"A": "AB", "B": "CD", "C": "EF"}
TYPES = {"car": 0.82, "truck": 0.08, "motorcycle": 0.06, "bus": 0.04}
LANES = 2  # as in network/grid.netgcfg
BEGIN_S, END_S = 28_800, 32_400  # 8 to 9 in the morning

Row = tuple[float, str, str]  # time in seconds, stream, the six columns as text


def binary(name: str) -> str:
    """The path of one of SUMO's programs, from the installed `eclipse-sumo`."""
    try:
        import sumo
    except ImportError:
        raise SystemExit(
            "cannot make the trace: Eclipse SUMO is missing; run: pip install 'speck[sumo]'"
        ) from None
    return str(Path(sumo.SUMO_HOME) / "bin" / name)


def run(*command: str) -> None:
    """Runs one program to its end; shows what it said only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"cannot run {Path(command[0]).name}: {done.stderr.strip()}")


def roads(net: Path) -> list[tuple[str, str, str]]:
    """(edge, from, to) of each road of the network, without those inside junctions."""
    edges = ElementTree.parse(net).getroot().iter("edge")
    return [
        (edge.attrib["id"], edge.attrib["from"], edge.attrib["to"])
        for edge in edges
        if edge.get("function") != "internal"
    ]


def place_sensors(
    found: list[tuple[str, str, str]], per_stream: int, rng: random.Random
) -> dict[str, str]:
    """sensor -> edge: each stream gets roads that lie within its site's columns."""
    inner = sorted(r for r in found if len(r[1]) == 2 and len(r[2]) == 2)
    sensors: dict[str, str] = {}
    for site, streams in STREAMS.items():
        own = [edge for edge, start, end in inner if {start[0], end[0]} <= set(COLUMNS[site])]
        chosen = rng.sample(own, per_stream * len(streams))
        for number, edge in enumerate(chosen):
            stream = streams[number // per_stream]
            sensors[f"{stream}-{number % per_stream + 1:02d}"] = edge
    return sensors


def write_sensors(path: Path, sensors: dict[str, str]) -> None:
    """A sensor is one instant induction loop on each lane, named sensor_lane."""
    lines = [
        f'<instantInductionLoop id="{sensor}_{lane}" lane="{edge}_{lane}" pos="100"'
        ' file="loops.xml"/>'
        for sensor, edge in sorted(sensors.items())
        for lane in range(LANES)
    ]
    path.write_text("<additional>\n" + "\n".join(lines) + "\n</additional>\n")


def write_trips(
    path: Path, found: list[tuple[str, str, str]], trips: int, rng: random.Random
) -> None:
    """Trips between random roads, at random instants of the hour."""
    # A road that leaves the town cannot start a trip, one that enters it cannot end a trip.
    starts = sorted(edge for edge, _, end in found if len(end) == 2)
    ends = sorted(edge for edge, start, _ in found if len(start) == 2)
    departures = sorted(round(rng.uniform(BEGIN_S, END_S - 60), 1) for _ in range(trips))
    lines = []
    for number, depart in enumerate(departures, start=1):
        start = rng.choice(starts)
        end = rng.choice([edge for edge in ends if edge != start])
        kind = rng.choices(list(TYPES), weights=list(TYPES.values()))[0]
        lines.append(
            f'<trip id="v{number}" type="{kind}" depart="{depart}" from="{start}" to="{end}"/>'
        )
    path.write_text("<routes>\n" + "\n".join(lines) + "\n</routes>\n")


def read_loops(path: Path) -> Iterator[Row]:
    """What the loops saw: one row for each vehicle whose front enters a sensor."""
    for _, element in ElementTree.iterparse(path):
        if element.tag == "instantOut" and element.get("state") == "enter":
            seen = element.attrib
            time, sensor = float(seen["time"]), seen["id"].split("_")[0]
            speed, length = float(seen["speed"]), float(seen["length"])
            # A wheel that creeps at less than 5 cm/s gives no speed that means anything.
            if speed >= 0.05:
                columns = f"{time:.2f},{sensor},{seen['vehID']},{speed:.2f},{length:.1f}"
                yield time, sensor.split("-")[0], f"{columns},{seen['type']}"
        element.clear()


def spoil(row: str, rng: random.Random) -> str:
    """A row that is wrong in one of five ways, made from a good one."""
    time, sensor, vehicle, speed, length, kind = row.split(",")
    return rng.choice(
        [
            f"{time},{sensor},{vehicle},{speed},{kind}",
            f"{time},{sensor},{vehicle},fast,{length},{kind}",
            f"{time},{sensor},{vehicle},-{speed},{length},{kind}",
            f"{time},{sensor},{vehicle},900.00,{length},{kind}",
            row[: rng.randrange(4, len(time) + 3)] + "\\x00#~",
        ]
    )


def mix(rows: list[Row], share: float, rng: random.Random) -> list[Row]:
    """The rows in time order, with malformed ones added after some of them."""
    mixed: list[Row] = []
    for row in sorted(rows):
        mixed.append(row)
        if rng.random() < share:
            mixed.append((row[0], row[1], spoil(row[2], rng)))
    return mixed


def write_trace(path: Path, rows: list[Row]) -> None:
    """Compressed without a time stamp or name, so that the same rows give the same bytes."""
    text = "\n".join([HEADER, *(f"{stream},{columns}" for _, stream, columns in rows)]) + "\n"
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(text.encode())


def simulate(folder: Path, options: argparse.Namespace) -> list[Row]:
    """Runs netgenerate and sumo in `folder`; returns the good rows."""
    rng = random.Random(options.seed)
    net, loops, trips = folder / "net.xml", folder / "loops.add.xml", folder / "trips.xml"
    run(binary("netgenerate"), "-c", str(NETWORK / "grid.netgcfg"), "-o", str(net))
    found = roads(net)
    write_sensors(loops, place_sensors(found, options.sensors, rng))
    write_trips(trips, found, options.trips, rng)
    additional = f"{NETWORK / 'vehicles.add.xml'},{loops}"
    run(
        binary("sumo"), "--net-file", str(net), "--route-files", str(trips),
        "--additional-files", additional, "--begin", str(BEGIN_S), "--end", str(END_S),
        "--seed", str(options.seed), "--step-length", "0.5", "--time-to-teleport", "120",
        "--device.rerouting.probability", "0.5", "--device.rerouting.period", "60",
        "--no-step-log", "--no-warnings",
    )  # fmt: skip
    return list(read_loops(folder / "loops.xml"))


def main() -> None:
    """Makes the trace as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "trace.csv.gz")
    parser.add_argument("--seed", type=int, default=2021)
    parser.add_argument("--trips", type=int, default=9000)
    parser.add_argument("--sensors", type=int, default=6, help="sensors of each stream")
    parser.add_argument("--malformed", type=float, default=0.005, help="share of malformed rows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="speck-trace-") as folder:
        good = simulate(Path(folder), options)
    rows = mix(good, options.malformed, random.Random(options.seed + 1))
    write_trace(options.out, rows)
    print(f"{options.out.name}: {len(good)} detections, {len(rows) - len(good)} malformed rows")


if __name__ == "__main__":
    main()
