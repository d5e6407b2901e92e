"""The claims about runs of the traffic application, on rows made up for the test."""

from __future__ import annotations

from bench.experiment import Check
from bench.traffic_summary import checks, summary
from speck.model.values import JsonObject


def run(
    deployment: str,
    number: int,
    *,
    job3: int = 1000,
    job4: int = 1000,
    p95: float = 10.0,
    cpu: float = 0.5,
    lost: int = 0,
    late_ms: float = 1.0,
) -> JsonObject:
    def job(processed: int) -> JsonObject:
        return {
            "processed": processed,
            "offered": 1000,
            "results": 2,
            "p50_ms": p95 / 2,
            "p95_ms": p95,
            "p99_ms": p95,
            "latencies_ms": [p95 / 2, p95],
        }

    return {
        "key": f"{deployment} here #{number}",
        "point": "here",
        "deployment": deployment,
        "interval_ms": 10.0,
        "up_mbps": 2.0,
        "seconds": 10.0,
        "published": 1000,
        "feed_late_ms": late_ms,
        "cpu": {"machine": cpu, "sites": {"edge-a": {"engine": 0.1, "broker": 0.01}}},
        "wan_bytes_per_s": {"edge-a": [10, 1], "edge-b": [20, 2], "cloud": [3, 30]},
        "job3": job(job3),
        "job4": job(job4),
        "lost": lost,
        "repeated": 0,
        "different": 0,
    }


def judge_rows(rows: list[JsonObject]) -> dict[str, Check]:
    verdicts = checks(rows, summary(rows, []), enough=False)
    return {check.name.partition(",")[0]: check for check in verdicts}


def rows(*, cloud: int, cpu: float = 0.5, lost: int = 0) -> list[JsonObject]:
    """Five rounds in which the cloud's Job 3 gives `cloud` of 1000, give or take ten."""
    all_rows = []
    for number, more in enumerate((-10, 0, 10, 0, 0)):
        all_rows.append(run("fog", number, lost=lost))
        all_rows.append(run("cloud", number, job3=cloud + more, p95=20.0, cpu=cpu))
    return all_rows


def test_d_is_the_share_that_the_cloud_is_short_of_what_the_fog_gives() -> None:
    result = summary(rows(cloud=800), [])
    (difference,) = result["d"]
    assert difference["job3_d_percent"]["mean"] == 20.0
    assert difference["job4_d_percent"]["mean"] == 0.0
    assert judge_rows(rows(cloud=800))["D of Job 3"].ok is True


def test_where_the_cloud_gives_more_the_claim_fails() -> None:
    fog_behind = [{**row, "job3": {**row["job3"], "processed": 700}} for row in rows(cloud=1000)]
    fog_behind = [
        row if row["deployment"] == "fog" else {**run("cloud", 0), "key": row["key"]}
        for row in fog_behind
    ]
    assert judge_rows(fog_behind)["D of Job 3"].ok is False


def test_where_both_keep_up_latency_is_compared() -> None:
    verdicts = judge_rows(rows(cloud=1000))
    assert verdicts["p95 of Job 3"].ok is True
    assert "D of Job 3" not in verdicts


def test_a_machine_that_is_saturated_is_not_judged() -> None:
    assert judge_rows(rows(cloud=800, cpu=0.71))["D of Job 3"].ok is None


def test_a_run_on_a_machine_that_was_saturated_does_not_spoil_its_point() -> None:
    disturbed = run("cloud", 0, job3=100, cpu=0.95)
    mixed = [disturbed if row["key"] == disturbed["key"] else row for row in rows(cloud=800)]
    result = summary(mixed, [])
    (difference,) = result["d"]
    assert (difference["pairs"], difference["job3_d_percent"]["mean"]) == (4, 19.75)
    assert [(it["saturated_runs"], it["saturated"]) for it in result["rates"]] == [
        (0, False),
        (1, False),
    ]
    assert judge_rows(mixed)["D of Job 3"].ok is True


def test_a_run_whose_feed_was_late_is_left_out_and_many_such_runs_fail() -> None:
    late = run("cloud", 0, job3=100, late_ms=300.0)
    mixed = [late if row["key"] == late["key"] else row for row in rows(cloud=800)]
    (difference,) = summary(mixed, [])["d"]
    assert (difference["pairs"], difference["job3_d_percent"]["mean"]) == (4, 19.75)
    feeds = "runs below 70 % whose feed was more than 200 ms late"
    assert judge_rows(mixed)[feeds].ok is True
    assert judge_rows(mixed)[feeds].measured == "1 of 10, the latest 300 ms"
    twice = run("fog", 1, late_ms=201.0)
    assert judge_rows([twice if r["key"] == twice["key"] else r for r in mixed])[feeds].ok is False


def test_of_two_pairs_of_runs_nothing_is_judged() -> None:
    verdicts = judge_rows(rows(cloud=800)[:4])
    assert {verdicts[name].ok for name in ("D of Job 3", "D of Job 4")} == {None}


def test_a_variant_on_a_saturated_machine_is_not_judged_and_spoils_no_other() -> None:
    behind = [*rows(cloud=800), *(run("fog-batched", n, cpu=0.8) for n in range(5))]
    result = checks(behind, summary(behind, []), enough=False)
    assert {c.name: c.ok for c in result if c.name.startswith("D of Job 4")} == {
        "D of Job 4, fog, here": True,
        "D of Job 4, fog-batched, here": None,
    }
    both = [*rows(cloud=1000), *(run("fog-direct", n, p95=5.0, cpu=0.8) for n in range(5))]
    result = checks(both, summary(both, []), enough=False)
    assert {c.name: c.ok for c in result if "against" in c.name and c.ok is not None} == {
        "p95 of Job 3, fog against cloud, here": True
    }


def test_a_detection_that_is_lost_fails_whatever_the_machine() -> None:
    assert judge_rows(rows(cloud=1000, cpu=0.9, lost=1))["detections lost in all runs"].ok is False


def test_the_uplinks_of_all_edges_are_added_up() -> None:
    (fog, _) = summary(rows(cloud=1000), [])["rates"]
    assert (fog["wan_up_bytes_per_s"]["mean"], fog["wan_down_bytes_per_s"]["mean"]) == (30, 3)
