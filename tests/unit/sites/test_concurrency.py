"""How many looks go on at once, by what the process uses beside them."""

from __future__ import annotations

from speck.sites.concurrency import FEW, MANY, PERIOD_S, AdaptiveConcurrency


class Process:
    def __init__(self) -> None:
        self.now = self.used = 50.0
        self.own = 10.0
        self.pace = AdaptiveConcurrency(lambda: self.own, lambda: self.used, lambda: self.now)

    def goes_on(self, elapsed_s: float, others: float, own: float = 0.0) -> int:
        """For so long, with so many cores used by others and by the looks."""
        self.now += elapsed_s
        self.used += (others + own) * elapsed_s
        self.own += own * elapsed_s
        return self.pace.at_once()


def test_many_while_the_process_waits_and_few_while_it_is_busy() -> None:
    process = Process()
    assert process.pace.at_once() == MANY
    assert process.goes_on(PERIOD_S, others=0.9) == FEW
    assert process.goes_on(10 * PERIOD_S, others=0.1) == MANY
    assert process.goes_on(PERIOD_S, others=1.4) == FEW


def test_what_the_looks_themselves_use_makes_nobody_busy() -> None:
    process = Process()
    assert process.goes_on(PERIOD_S, others=0.1, own=0.9) == MANY
    assert process.goes_on(PERIOD_S, others=0.5, own=0.5) == FEW


def test_a_moment_says_nothing() -> None:
    process = Process()
    assert process.goes_on(PERIOD_S / 4, others=1.0) == MANY
    assert process.goes_on(PERIOD_S, others=0.1) == MANY
