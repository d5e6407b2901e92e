"""The pages of moves on other engines say the times in words, beside Flink's."""

from __future__ import annotations

from bench.moves_engines import KINDS
from bench.page.moves_engines import SECTIONS
from bench.page.result import Result
from bench.page.section import markdown


def test_a_stop_a_move_and_a_recovery_stand_beside_those_of_flink() -> None:
    def spread(seconds: float) -> dict[str, object]:
        return {"p50": seconds, "p95": seconds, "max": seconds + 1, "of": 3}

    def of(seconds: float, *kills: str) -> dict[str, object]:
        times = {key: spread(seconds) for key in KINDS}
        recovery = {what: spread(seconds + 10) for what in kills}
        return {"moves": 20, "delivery": "exactly_once", **times, "recovery_s": recovery}

    content = {
        "seconds": 60.0,
        "settings": {"rate_per_s": 500, "checkpoint_interval_s": 1.0, "kills": 3},
        "summary": {"flink": of(2, "program", "agent"), "spark": of(5, "program", "runner")},
    }
    text = markdown(SECTIONS[1], Result(content, "moves_spark.json"))
    assert (
        "A stop takes 5 s on Spark and 2 s on Flink (medians), a move keeps the far end of the"
        " chain silent for 5 s and 2 s, and after a kill results are back after 15 s and 12 s."
    ) in text
    assert "| recovery from a kill of the runner | – | – | 15 | 16 |" in text
    assert "| recovery from a kill of the agent | 12 | 13 | – | – |" in text
