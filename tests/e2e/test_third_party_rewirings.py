"""Random rewirings on the engine and the broker of a third party, whose machines are switched off
in between: each output gets each record once. Its links are logs of one part or of several."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from speck.binding import open_links
from speck.model.record import Record
from speck.model.values import JsonObject
from tests.drawn_rewirings import draw_steps
from tests.rewirings import ENDS, OUTPUTS, SITES, parse_wiring
from tests.third_party_kinds import canals
from tests.third_party_land import DONE, Land, open_land
from tests.waiting import wait_for

POINTS = ("step", "publish", "commit", "stop", "copy", "claim")
CHANGES = 2
FORCED = replace(DONE, force=True)


def describe(wiring: str) -> JsonObject:
    body = parse_wiring(wiring)
    for job in body["jobs"]:
        job["job_path"], job["delivery"] = "upper.txt", "exactly_once"
        del job["entry_class"]
        if job["source_topic"] == "in":
            job["source_topic"] = "raw"
    return {**body, "inputs": [{"site": ENDS["in"][0], "topic": "raw"}]}


def collect(stack: ExitStack, land: Land) -> dict[str, list[Record]]:
    """What comes at each output from now on."""
    came: dict[str, list[Record]] = {output: [] for output in OUTPUTS}
    for output, records in came.items():
        links = open_links("canal", land.address("cloud"))
        reader = links.reader(output, f"out-{output}", records.append, lambda _: None)
        stack.enter_context(reader)
    return came


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parts", [1, 3])
def test_every_record_comes_out_once(tmp_path: Path, seed: int, parts: int) -> None:
    dice = random.Random(seed)
    wirings = [describe(step.wiring) for step in draw_steps(4 * seed)]
    with open_land(tmp_path, *SITES) as land, ExitStack() as stack:
        for site in SITES:
            canals()[land.address(site)].part_count = parts
        came = collect(stack, land)
        land.apply_body(wirings[0])
        land.feed(10)
        for wiring in wirings[1 : CHANGES + 1]:
            died = dice.choice(SITES)
            land.runners[died].dies_at = dice.choice(POINTS)
            with ThreadPoolExecutor(1) as pool:
                change = pool.submit(land.apply_body, wiring, FORCED)
                while not change.done():
                    land.feed(1)
                    if land.runners[died].dead:
                        land.revive(died)
                    wait([change], 0.02)
                change.result()
            land.runners[died].dies_at = ""
            if land.runners[died].dead:
                land.revive(died)
            land.feed(10)
        expected = Counter(f"R{number}" for number in range(land.fed))
        for output, records in came.items():
            wait_for(lambda records=records: len(records) >= land.fed, output, 120)
            assert Counter(record.payload.decode() for record in records) == expected, output
