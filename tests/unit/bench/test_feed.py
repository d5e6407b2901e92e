"""The paces of a feed."""

from __future__ import annotations

import pytest

from bench.instruments.feed import Pace, Ramp, Steady


def test_a_ramp_grows_evenly_and_then_stays() -> None:
    ramp = Ramp(50.0, 150.0, 100.0)
    assert [ramp.rate(at) for at in (0.0, 50.0, 100.0, 200.0)] == [50.0, 100.0, 150.0, 150.0]
    assert ramp.count(100.0) == pytest.approx(10_000)
    assert ramp.count(110.0) == pytest.approx(11_500)


@pytest.mark.parametrize(
    "pace", [Steady(70.0), Ramp(50.0, 150.0, 100.0), Ramp(0.0, 9.0, 40.0), Ramp(8.0, 8.0, 5.0)]
)
def test_a_number_is_due_when_so_many_are(pace: Pace) -> None:
    for number in (1, 170, 9_999, 20_000):
        assert pace.count(pace.due(number)) == pytest.approx(number)
