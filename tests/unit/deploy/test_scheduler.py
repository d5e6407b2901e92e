"""The threads that the changes of a service start: a seed decides in which order they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from binders.memory import World
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, broker, composition, engine, job_body
from tests.turns import Turns

SITES = ("edge-a", "cloud")
CHAINS = [
    composition(*(job_body(name, site) for name in "ABCDEF"), name="c", inputs=[]) for site in SITES
]


def list_calls(folder: Path, seed: int) -> list[tuple[str, str]]:
    """All calls of engines and brokers, in order, of a service that moves six jobs."""
    calls: list[tuple[str, str]] = []
    folder.mkdir()
    turns, sites = Turns(seed), [site_body(site) for site in SITES]

    def note(kind: str, subject: str) -> None:
        calls.append((kind, subject))
        turns.pass_on()

    with memory_service(folder, sites, clock=turns, scheduler=turns) as service:
        for site in SITES:
            engine(site).before = broker(site).before = note
        for chain in CHAINS:
            service.compositions.apply(chain, DONE)
        World.current().pump()
    return calls


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_calls_in_the_same_order(tmp_path: Path, seed: int) -> None:
    assert list_calls(tmp_path / "one", seed) == list_calls(tmp_path / "two", seed)


def test_another_seed_gives_another_order(tmp_path: Path) -> None:
    orders = [[kind for kind, _ in list_calls(tmp_path / str(seed), seed)] for seed in (1, 2)]
    assert set(orders[0]) == set(orders[1])
    assert orders[0] != orders[1]
