"""How many looks go on at once, by what the process uses."""

from __future__ import annotations

from speck.service.pace import FEW, MANY, PERIOD_S, Pace


class Process:
    def __init__(self) -> None:
        self.now = self.used = 50.0
        self.pace = Pace(lambda: self.used, lambda: self.now)

    def goes_on(self, elapsed_s: float, cores: float) -> int:
        self.now += elapsed_s
        self.used += cores * elapsed_s
        return self.pace.at_once()


def test_many_while_the_process_waits_and_few_while_it_is_busy() -> None:
    process = Process()
    assert process.pace.at_once() == MANY
    assert process.goes_on(PERIOD_S, cores=0.9) == FEW
    assert process.goes_on(10 * PERIOD_S, cores=0.1) == MANY
    assert process.goes_on(PERIOD_S, cores=1.4) == FEW


def test_a_moment_says_nothing() -> None:
    process = Process()
    assert process.goes_on(PERIOD_S / 4, cores=1.0) == MANY
    assert process.goes_on(PERIOD_S, cores=0.1) == MANY
