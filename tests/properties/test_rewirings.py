"""Compositions with two outputs, turned into one another while records flow: whatever is rewired,
each output gets each record once. Also where a change is cancelled at some call, a start is refused
or a broker is killed, and the change is made again, or rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.drawn_rewirings import (
    draw_deaths,
    draw_lone_deaths,
    draw_steps,
    draw_stops,
    draw_third,
    draw_third_with_deaths,
)
from tests.rewirings import (
    Cancelled,
    Killed,
    KilledAfterStops,
    Refused,
    Step,
    Trouble,
    rewire,
)

CHUNK = 25
"""Sequences in one test."""
AGAIN = [
    (
        "B:in>x D:x>o1 S:o1>o2",
        "D@edge-b:in>cloud/y B:cloud/y>o1 S:cloud/y>o2",
        Killed("edge-a", 1, 13),
        26,
    ),
    (
        "B:in>o1 S@cloud:in>o2",
        "E@cloud:in>y C:y>cloud/y D@cloud:cloud/y>o1 T:o1>o2",
        Killed("edge-a", 2, 12),
        0,
    ),
    (
        "A:in>edge-b/x C:edge-b/x>o1 S:o1>o2",
        "C:in>cloud/y D@edge-b:cloud/y>edge-b/y B@edge-b:edge-b/y>o1 S:cloud/y>o2",
        Killed("edge-a", 5, 17),
        1104,
    ),
    (
        "D@edge-b:in>cloud/x B@cloud:cloud/x>x E@cloud:x>y C@cloud:y>o1 S:cloud/x>o2",
        "E@cloud:in>o1 S@edge-b:o1>o2",
        Killed("edge-a", 12, 21),
        0,
    ),
    (
        "A@cloud:in>edge-b/y E@cloud:edge-b/y>y C@edge-b:y>cloud/y D:cloud/y>o1 S@cloud:o1>o2",
        "D@edge-b:in>y C@cloud:y>o1 T@edge-b:y>o2",
        Killed("edge-a", 17, 21),
        0,
    ),
    (
        "B@cloud:in>cloud/x A@edge-b:cloud/x>y D@cloud:y>edge-b/y E:edge-b/y>o1"
        " T@edge-b:cloud/x>o2",
        "A@cloud:in>cloud/x C@edge-b:cloud/x>o1 S:cloud/x>o2",
        Killed("edge-a", 20, 23),
        0,
    ),
    ("A:in>x D:x>o1 T:in>o2", "A:in>x D:x>y B:y>o1 T:x>o2", Refused("B"), 5),
    ("A:in>x D:x>o1 T:in>o2", "A:in>x D:x>y B:y>o1 T:x>o2", Refused("D"), 0),
    ("E:in>y A:y>x C:x>o1 T:y>o2", "E@cloud:in>y C:y>o1 S:o1>o2", Cancelled(18), 18),
    ("E:in>y A:y>x C:x>x2 B:x2>o1 T:y>o2", "E@cloud:in>y C:y>o1 S:o1>o2", Cancelled(20), 20),
    ("E:in>y A:y>o1 T:y>o2", "E@cloud:in>y A:y>o1 S:o1>o2", Cancelled(17), 17),
]
"""Changes with a trouble that once lost or repeated records when they were made again, with the
seed of the scheduler."""
ROLLED_BACK = [
    ("C:in>x A:x>y B:y>o1 S:y>o2", "C:in>x A:x>y B:y>o1 S:in>o2", Cancelled(30), 28),
    ("A:in>x B:x>o1 T:x>o2", "A:in>x C:x>o1 S:in>o2", Cancelled(36), 37),
    ("A:in>x B:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Cancelled(36), 77),
    ("A:in>x B:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Cancelled(42), 78),
    ("A:in>x C:x>o1 S:in>o2", "C:in>x A:x>o1 S:o1>o2", Cancelled(54), 96),
    ("A:in>y B:y>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Cancelled(42), 110),
    ("A:in>y B:y>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Cancelled(48), 111),
    ("B:in>x A:x>o1 S:in>o2", "A:in>x B:x>o1 S:x>o2", Cancelled(54), 136),
    ("C:in>x A:x>y B:y>o1 S:o1>o2", "A:in>y B:y>o1 S:in>o2", Refused("A"), 109),
    ("C:in>x A:x>y B:y>o1 S:o1>o2", "A:in>y B:y>o1 S:in>o2", Refused("S"), 110),
    ("A:in>y B:y>o1 S:o1>o2", "A:in>x B:x>o1 S:in>o2", Refused("B"), 112),
    ("A:in>y B:y>o1 S:o1>o2", "A:in>x B:x>o1 S:in>o2", Refused("S"), 113),
    ("B:in>o1 S:o1>o2", "C:in>x A:x>y B:y>o1 S:in>o2", Refused("S"), 128),
    ("A:in>x B:x>y C:y>o1 S:in>o2", "A:in>y B:y>o1 S:o1>o2", Refused("B"), 135),
    ("A:in>y B:y>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Refused("B"), 141),
    ("A:in>y B:y>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Refused("C"), 142),
    ("A:in>y B:y>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Refused("T"), 143),
    ("A:in>x B:x>y C:y>o1 S:o1>o2", "A:in>x B:x>o1 T:x>o2", Refused("B"), 144),
    ("A:in>y B:y>o1 S:y>o2", "A:in>x C:x>o1 S:in>o2", Refused("C"), 149),
    ("A:in>y B:y>o1 S:y>o2", "A:in>x C:x>o1 S:in>o2", Refused("S"), 150),
    ("A:in>y B:y>o1 S:in>o2", "A:in>y B:y>o1 S:o1>o2", Refused("S"), 157),
    ("A:in>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:o1>o2", Refused("B"), 166),
    ("A:in>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:o1>o2", Refused("C"), 167),
    ("A:in>x B:x>o1 S:x>o2", "B:in>o1 S:in>o2", Refused("S"), 17),
    ("A:in>x B:x>o1 S:o1>o2", "A:in>o1 S:in>o2", Refused("S"), 177),
    ("A:in>x B:x>o1 S:x>o2", "A:in>x B:x>o1 S:o1>o2", Refused("S"), 29),
    ("C:in>x A:x>y B:y>o1 S:in>o2", "C:in>x A:x>y B:y>o1 S:x>o2", Refused("S"), 304),
    ("C:in>x A:x>o1 S:o1>o2", "C:in>x A:x>y B:y>o1 S:in>o2", Refused("A"), 336),
    ("C:in>x A:x>o1 S:o1>o2", "C:in>x A:x>y B:y>o1 S:in>o2", Refused("B"), 337),
    ("A:in>x B:x>o1 S:in>o2", "A:in>x B:x>o1 S:x>o2", Refused("S"), 39),
    ("A:in>x B:x>o1 T:x>o2", "A:in>x C:x>o1 S:in>o2", Refused("C"), 41),
    ("A:in>x B:x>y C:y>o1 S:in>o2", "A:in>x C:x>o1 S:o1>o2", Refused("C"), 417),
    ("A:in>x B:x>o1 T:x>o2", "A:in>x C:x>o1 S:in>o2", Refused("S"), 42),
    ("A:in>x C:x>o1 S:in>o2", "B:in>x A:x>o1 S:x>o2", Refused("B"), 42),
    ("A:in>x C:x>o1 S:in>o2", "B:in>x A:x>o1 S:x>o2", Refused("S"), 44),
    ("A:in>y B:y>o1 S:o1>o2", "A:in>x C:x>o1 S:in>o2", Refused("C"), 47),
    ("C:in>x A:x>y B:y>o1 S:o1>o2", "A:in>x B:x>o1 S:in>o2", Refused("S"), 47),
    ("A:in>y B:y>o1 S:o1>o2", "A:in>x C:x>o1 S:in>o2", Refused("S"), 48),
    ("A:in>x B:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:o1>o2", Refused("B"), 599),
    ("A:in>x B:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:o1>o2", Refused("C"), 600),
    ("A:in>x B:x>o1 S:o1>o2", "B:in>o1 S:in>o2", Refused("S"), 64),
    ("A:in>x C:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:o1>o2", Refused("B"), 683),
    ("A:in>x C:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:o1>o2", Refused("C"), 684),
    ("C:in>x A:x>o1 S:in>o2", "C:in>x A:x>y B:y>o1 S:o1>o2", Refused("A"), 690),
    ("C:in>x A:x>o1 S:in>o2", "C:in>x A:x>y B:y>o1 S:o1>o2", Refused("B"), 691),
    ("C:in>x A:x>o1 S:in>o2", "C:in>x A:x>y B:y>o1 S:o1>o2", Refused("S"), 692),
    ("A:in>x C:x>o1 S:in>o2", "A:in>x B:x>o1 S:o1>o2", Refused("B"), 733),
    ("A:in>x B:x>o1 T:x>o2", "A:in>o1 S:in>o2", Refused("A"), 77),
    ("A:in>x B:x>o1 T:x>o2", "A:in>o1 S:in>o2", Refused("S"), 78),
    ("A:in>y B:y>o1 S:y>o2", "B:in>o1 S:in>o2", Refused("S"), 80),
    ("B:in>x A:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 S:x>o2", Refused("A"), 84),
    ("A:in>x B:x>o1 S:in>o2", "A:in>y B:y>o1 S:y>o2", Refused("B"), 85),
    ("A:in>x B:x>o1 S:in>o2", "A:in>x B:x>y C:y>o1 T:x>o2", Refused("T"), 94),
    ("C:in>x D:x>o1 T:in>o2", "D:in>o1 T@cloud:in>o2", Cancelled(21), 21),
    ("A:in>x B:x>y C:y>o1 S:in>o2", "B:in>o1 S@cloud:in>o2", Cancelled(18), 18),
    ("C:in>x A:x>y B:y>o1 S:y>o2", "C:in>x B:x>o1 T:x>o2", Refused("B"), 0),
    (
        "D:in>o1 S:in>o2",
        "E:in>y C:y>edge-b/y D:edge-b/y>x A:x>o1 S:x>o2",
        Cancelled(20),
        20,
    ),
    (
        "C:in>x D:x>o1 S:in>o2",
        "A:in>cloud/x B:cloud/x>y C:y>edge-b/y D:edge-b/y>o1 S:edge-b/y>o2",
        Cancelled(26),
        26,
    ),
    (
        "A:in>cloud/y C@cloud:cloud/y>x D@cloud:x>o1 S@cloud:x>o2",
        "A:in>o1 S@cloud:in>o2",
        Cancelled(36),
        7,
    ),
    (
        "D:in>cloud/x C:cloud/x>edge-b/y A:edge-b/y>o1 T:in>o2",
        "B:in>y E:y>cloud/x D:cloud/x>o1 S:cloud/x>o2",
        Refused("S"),
        0,
    ),
    (
        "D:in>cloud/x C:cloud/x>edge-b/y A:edge-b/y>o1 T:in>o2",
        "B:in>y E:y>x F:x>cloud/x D:cloud/x>o1 S:cloud/x>o2",
        Refused("S"),
        0,
    ),
    ("A:in>x D:x>o1 T:in>o2", "A:in>x D:x>y B:y>o1 T:x>o2", Refused("B"), 5),
    (
        "C@edge-b:in>edge-b/x E@edge-b:edge-b/x>cloud/x B:cloud/x>o1 T:cloud/x>o2",
        "C@cloud:in>edge-b/x B:edge-b/x>y D:y>x A:x>o1 T:edge-b/x>o2",
        Refused("A", 2),
        0,
    ),
]
"""The same of changes that were rolled back. In most of them several readers change at one record,
and only some of them have begun."""


@pytest.mark.parametrize(("first", "then", "trouble", "seed"), AGAIN)
def test_every_record_comes_out_once_where_a_change_was_made_again(
    tmp_path: Path, first: str, then: str, trouble: Trouble, seed: int
) -> None:
    steps = [Step(first), Step(then, trouble), Step(then)]
    assert rewire(tmp_path / "trial", steps, seed) == {}


@pytest.mark.parametrize(("first", "then", "trouble", "seed"), ROLLED_BACK)
def test_every_record_comes_out_once_where_a_change_was_rolled_back(
    tmp_path: Path, first: str, then: str, trouble: Trouble, seed: int
) -> None:
    steps = [Step(first), Step(then, trouble), Step(first)]
    assert rewire(tmp_path / "trial", steps, seed) == {}


BRANCH = "A:in>o1 S:in>o2"
SWITCHED = [
    (BRANCH, "A:in>o2 S:in>o1", 2),
    (BRANCH, "S:in>o1 T:in>o2", 2),
    (BRANCH, "A:in>o1 S:o1>o2", 2),
    ("A:in>o1 S:o1>o2", BRANCH, 1),
    ("A:in>x B:x>o1 S:x>o2", "A:in>x B:x>o1 S:in>o2", 1),
    (BRANCH, "B:in>x C:x>o1 S:x>o2", 1),
    ("B:in>x C:x>o1 S:x>o2", BRANCH, 1),
    ("B:in>x C:x>o1 S:in>o2", "C:in>x B:x>o1 S:in>o2", 1),
    ("B:in>o1 S:o1>o2", "C:in>x B:x>o1 S:x>o2", 1),
]
"""Changes of several readers of the input at one record, or of one that several follow, or that
goes on at another link; with how many of them have stopped when its broker is killed."""


@pytest.mark.parametrize("is_rolled_back", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(("first", "then", "stops"), SWITCHED)
def test_readers_change_at_one_record_though_their_broker_forgets_where_they_stopped(
    tmp_path: Path, first: str, then: str, stops: int, is_rolled_back: bool
) -> None:
    back = [Step(first)] if is_rolled_back else []
    steps = [Step(first), Step(then, KilledAfterStops("edge-a", stops)), *back, Step(then)]
    for seed in (0, 1):
        assert rewire(tmp_path / str(seed), steps, seed) == {}


DRAWN = [
    611,
    787,
    1051,
    1179,
    1243,
    1363,
    1507,
    1722,
    2243,
    2331,
    2715,
    3259,
    4525,
    6677,
    7219,
    10171,
    10443,
    11659,
    12241,
    12750,
    12963,
    13158,
    13718,
    14134,
    14835,
    15805,
    16275,
    16558,
    16742,
]
"""Sequences that once lost or repeated records, of those that run at length only."""


@pytest.mark.parametrize("seed", DRAWN)
def test_every_record_comes_out_once_where_one_was_lost_or_repeated(
    tmp_path: Path, seed: int
) -> None:
    assert rewire(tmp_path / "trial", draw_steps(seed), seed) == {}


@pytest.mark.parametrize("seed", [451, 1051])
def test_every_record_comes_out_once_where_every_reader_is_busy(tmp_path: Path, seed: int) -> None:
    """Of two readers that were to follow one, only the first was kept from it."""
    assert rewire(tmp_path / "trial", draw_steps(seed), seed, is_eager=True) == {}


def test_a_reader_under_a_name_that_was_replaced_before_comes_back_for_itself_only(
    tmp_path: Path,
) -> None:
    two = "B:in>o1 S:in>o2"  # both of them have taken the place of D
    steps = [Step("D:in>y B:y>o1 S:o1>o2"), Step(two)]
    steps += [Step("D:in>o1 T:in>o2", Refused("T")), Step(two)]
    assert rewire(tmp_path / "trial", steps, 1) == {}


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 40), marks=pytest.mark.long)])
def test_a_session_that_has_ended_is_not_stored_again_by_one_who_has_read_it(
    tmp_path: Path, seeds: range
) -> None:
    """The start of R, which commits a cut, while what S left is released."""
    branch = "P:in>x R:x>o1 S:x>o2"
    steps = [Step(branch), Step("P:in>x R:x>o1 S:o1>o2"), Step(branch)]
    for seed in seeds:
        assert rewire(tmp_path / str(seed), steps, seed, at_writes=True) == {}


THIRD = [
    (
        [
            Step("C:in>cloud/y D@edge-b:cloud/y>o1 T:cloud/y>o2"),
            Step("D@edge-b:in>y B@edge-b:y>o1 T:in>o2", Refused("T")),
            Step(
                "E:in>edge-b/y A@cloud:edge-b/y>edge-b/x B:edge-b/x>x D@edge-b:x>o1"
                " T@cloud:edge-b/x>o2",
                Refused("D", 2),
            ),
            Step("B@cloud:in>o1 S@edge-b:in>o2"),
        ],
        514,
    ),
    (
        [
            Step("B@edge-b:in>y C@cloud:y>x D@cloud:x>edge-b/y E@cloud:edge-b/y>o1 T@edge-b:y>o2"),
            Step(
                "A:in>x D@cloud:x>edge-b/y E@cloud:edge-b/y>cloud/y C@cloud:cloud/y>o1"
                " S:cloud/y>o2",
                Cancelled(16),
            ),
            Step(
                "A:in>x D@cloud:x>edge-b/y E@cloud:edge-b/y>cloud/y C@cloud:cloud/y>o1 S:cloud/y>o2"
            ),
        ],
        2975,
    ),
]
"""Sequences that lost or repeated records on the way to a third wiring, and then to itself."""


@pytest.mark.parametrize(("steps", "seed"), THIRD)
def test_every_record_comes_out_once_on_the_way_to_a_third_wiring(
    tmp_path: Path, steps: Sequence[Step], seed: int
) -> None:
    assert rewire(tmp_path / "trial", steps, seed) == {}


@pytest.mark.parametrize("seed", [882, 3750, 3873])
def test_every_record_comes_out_once_where_a_third_wiring_lost_or_repeated_one(
    tmp_path: Path, seed: int
) -> None:
    assert find_faults(tmp_path, [seed], draw_third) == {}


def test_what_was_sent_before_a_session_was_made_is_not_for_its_reader(tmp_path: Path) -> None:
    """Its sender has stopped, and sends it again to all sessions once the broker was killed."""
    assert find_faults(tmp_path, [264], draw_stops) == {}


def find_faults(
    folder: Path,
    seeds: Sequence[int],
    draw: Callable[[int], list[Step]] = draw_steps,
    *,
    at_writes: bool = False,
) -> dict[int, object]:
    """What is lost or comes twice, by the seed of the sequence."""
    faults = {
        seed: rewire(
            folder / str(seed),
            draw(seed),
            seed,
            at_writes=at_writes,
            may_drop=draw in (draw_third, draw_third_with_deaths),
        )
        for seed in seeds
    }
    return {seed: each for seed, each in faults.items() if each}


@pytest.mark.parametrize("first", range(0, 500, CHUNK))
def test_every_record_comes_out_once_whatever_is_rewired(tmp_path: Path, first: int) -> None:
    assert find_faults(tmp_path, range(first, first + CHUNK)) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(500, 20_000, 20 * CHUNK))
def test_every_record_comes_out_once_whatever_is_rewired_long(tmp_path: Path, first: int) -> None:
    assert find_faults(tmp_path, range(first, first + 20 * CHUNK)) == {}


@pytest.mark.parametrize("first", range(0, 50, CHUNK))
def test_every_record_comes_out_once_whatever_a_third_wiring_is(tmp_path: Path, first: int) -> None:
    assert find_faults(tmp_path, range(first, first + CHUNK), draw_third) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(50, 6050, 20 * CHUNK))
def test_every_record_comes_out_once_whatever_a_third_wiring_is_long(
    tmp_path: Path, first: int
) -> None:
    assert find_faults(tmp_path, range(first, first + 20 * CHUNK), draw_third) == {}


def test_every_record_comes_out_once_whoever_writes_to_the_store(tmp_path: Path) -> None:
    assert find_faults(tmp_path, range(CHUNK), at_writes=True) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(CHUNK, 2025, 4 * CHUNK))
def test_every_record_comes_out_once_whoever_writes_to_the_store_long(
    tmp_path: Path, first: int
) -> None:
    assert find_faults(tmp_path, range(first, first + 4 * CHUNK), at_writes=True) == {}


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_every_record_comes_out_once_though_a_broker_is_killed_after_stops(
    tmp_path: Path, first: int
) -> None:
    assert find_faults(tmp_path, range(first, first + 5), draw_stops) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(10, 2010, 4 * CHUNK))
def test_every_record_comes_out_once_though_a_broker_is_killed_after_stops_long(
    tmp_path: Path, first: int
) -> None:
    assert find_faults(tmp_path, range(first, first + 4 * CHUNK), draw_stops) == {}


LONE = [3, 34, 55, 62, 68, 71, 105, 117, 149]
"""Sequences with deaths of the service alone that once lost or repeated records."""
BESIDE = [13, 21, 53, 661, 701]
"""The same beside other troubles."""


@pytest.mark.parametrize(
    ("draw", "seed"),
    [*((draw_lone_deaths, seed) for seed in LONE), *((draw_deaths, seed) for seed in BESIDE)],
)
def test_every_record_comes_out_once_where_a_death_lost_or_repeated_one(
    tmp_path: Path, draw: Callable[[int], list[Step]], seed: int
) -> None:
    assert find_faults(tmp_path, [seed], draw) == {}


@pytest.mark.parametrize("first", range(0, 15, 5))
def test_every_record_comes_out_once_though_the_service_dies(tmp_path: Path, first: int) -> None:
    assert find_faults(tmp_path, range(first, first + 5), draw_deaths) == {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(15, 2015, 4 * CHUNK))
def test_every_record_comes_out_once_though_the_service_dies_long(
    tmp_path: Path, first: int
) -> None:
    assert find_faults(tmp_path, range(first, first + 4 * CHUNK), draw_deaths) == {}


THIRDS = [pytest.param(range(n, n + 98), marks=pytest.mark.long) for n in range(10, 500, 98)]


@pytest.mark.parametrize("seeds", [range(10), *THIRDS])
def test_every_record_comes_out_once_though_the_service_dies_on_the_way_to_a_third_wiring(
    tmp_path: Path, seeds: Sequence[int]
) -> None:
    assert find_faults(tmp_path, seeds, draw_third_with_deaths) == {}
