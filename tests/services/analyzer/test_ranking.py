"""The order of jobs for the edge, and the objections to each."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from speck.analyzer.contracts import Contract
from speck.analyzer.features import JOBS
from speck.analyzer.ranking import ORIGINS, find_origins, rank_jobs
from speck.analyzer.sites import SITES_LOADED, SITES_USED
from speck.errors import PermanentError

Row = dict[str, Any]


def frame(spark: SparkSession, contract: Contract, rows: list[Row]) -> DataFrame:
    """Rows with what they do not tell as null."""
    filled = [tuple(row.get(name) for name in contract.columns) for row in rows]
    return spark.createDataFrame(filled, contract.ddl)


def job(name: str, saved: float = 1000.0, cost: float = 0.001, **more: Any) -> Row:
    """A job at the cloud fed from edge-a, 100 records/s."""
    return {
        "job_name": name,
        "composition": "c",
        "site": "cloud",
        "evidence": "sufficient",
        "why": [],
        "confidence": "high",
        "in_rate": 100.0,
        "reference_core_s_per_record": cost,
        "bytes_in_rate": 5000.0,
        "bytes_out_rate": 5000.0 - saved,
        "stateful": False,
        "state_why": "declared",
        "subtasks": 1,
        "pinned": False,
        "source_site": "edge-a",
        "source_topic": f"{name}-in",
        "sink_site": "cloud",
        "sink_topic": f"{name}-out",
        **more,
    }


def site(name: str, **more: Any) -> Row:
    tier = "cloud" if name == "cloud" else "edge"
    fields = {"site": name, "tier": tier, "cores": 4.0, "pace": 0.5, "slots_free": 2, "load": 0.0}
    return {**fields, **more}


def rank(spark: SparkSession, jobs: list[Row], sites: list[Row] | None = None) -> list[Any]:
    of_jobs = frame(spark, JOBS, jobs)
    places = frame(spark, SITES_LOADED, sites or [site("edge-a"), site("cloud")])
    origins = find_origins(of_jobs, SITES_USED.check(places, "test"))
    return sorted(rank_jobs(of_jobs, places, origins).collect(), key=lambda row: row["rank"])


def names(rows: list[Any]) -> list[str]:
    return [row.job_name for row in rows]


def test_by_bytes_saved_for_each_core_second_of_the_edge(few: SparkSession) -> None:
    ranking = rank(
        few,
        [job("dear", saved=4000, cost=0.01), job("cheap", saved=1000), job("wider", saved=-200)],
    )
    assert names(ranking) == ["cheap", "dear", "wider"]
    # 1 ms of the reference's core, 100 times a second, at half its pace
    assert ranking[0].edge_core_s_per_s == pytest.approx(0.2)
    assert ranking[0].score == pytest.approx(1000 / 0.2)
    assert ranking[2].against == ["it sends 200 B/s more than it receives"]


def test_on_ties_those_without_state_come_first(few: SparkSession) -> None:
    ranking = rank(
        few,
        [
            job("keeps", saved=1005, stateful=True, state_bytes=7),
            job("unknown", saved=1003, stateful=None),
            job("keeps-not", saved=1000),
            job("less", saved=900),
            job("much-more", saved=2000, stateful=True),
        ],
    )
    assert names(ranking) == ["much-more", "keeps-not", "unknown", "keeps", "less"]
    assert ranking[3].against == ["stateful: a move transfers 7 bytes"]


def test_what_is_against_a_job_is_told(few: SparkSession) -> None:
    ranking = rank(
        few,
        [
            job("fixed", pinned=True),
            job("large", subtasks=3),
            job("heavy", cost=0.02),
            job("fed-by-cloud", source_site="cloud"),
            job("unknown", evidence="insufficient", why=["busy for 0.2 s, less than 1 s"],
                reference_core_s_per_record=None),
            job("there", site="edge-a"),
        ],
        [site("edge-a", load=0.1), site("cloud")],
    )  # fmt: skip
    against = {row.job_name: row.against for row in ranking}
    assert against["fixed"] == ["pinned"]
    assert against["large"] == ["edge-a has 2 free slots"]
    assert against["heavy"] == [
        "over the capacity of edge-a: 2.10 of 1.40 reference core-seconds per second"
    ]
    assert against["fed-by-cloud"] == ["its input does not come from an edge"]
    assert against["unknown"] == ["insufficient: busy for 0.2 s, less than 1 s"]
    assert against["there"] == []
    assert ranking[-1].score is None


def test_a_job_is_fed_by_the_edge_that_the_jobs_before_it_read(few: SparkSession) -> None:
    chain = [
        job("first"),
        job("second", source_site="cloud", source_topic="first-out"),
        job("other", source_site="edge-b", sink_topic="first-out", bytes_out_rate=1.0),
    ]
    ranking = rank(few, chain, [site("edge-a"), site("edge-b"), site("cloud")])
    edges = {row.job_name: row.edge for row in ranking}
    assert edges == {"first": "edge-a", "second": "edge-a", "other": "edge-b"}


def test_a_job_fed_by_several_edges_saves_what_its_own_edge_feeds(few: SparkSession) -> None:
    """At an edge it spares that edge's part; the others' crosses as before."""
    clean = [
        job(f"clean-{e}", source_site=f"edge-{e}", sink_topic="mid", bytes_out_rate=rate)
        for e, rate in (("a", 2000.0), ("b", 1500.0), ("c", 1500.0))
    ]
    merge = job("merge", saved=4900, source_site="cloud", source_topic="mid")
    places = [site(f"edge-{e}") for e in "abc"] + [site("cloud")]
    ranking = next(row for row in rank(few, [*clean, merge], places) if row.job_name == "merge")
    assert ranking.edge == "edge-a"
    assert ranking.wan_bytes_saved_per_s == pytest.approx(0.4 * 5000 - 100)
    assert ranking.against == ["only 40 % of its input comes from edge-a"]
    assert "sends 100 B/s of the 2000 B/s that it receives from edge-a" in ranking.reasons


def test_what_arises_at_the_cloud_would_have_to_come_down(few: SparkSession) -> None:
    jobs = [
        job("clean", sink_topic="mid", bytes_out_rate=1000.0),
        job("made-up", source_site="cloud", sink_topic="mid", bytes_out_rate=4000.0),
        job("merge", saved=4900, source_site="cloud", source_topic="mid"),
    ]
    ranking = next(row for row in rank(few, jobs) if row.job_name == "merge")
    assert ranking.wan_bytes_saved_per_s == pytest.approx(1000 - 4000 - 100)
    assert ranking.against[1] == "3100 B/s more would cross between sites"


def test_without_rates_of_those_that_feed_it_nothing_is_said_of_shares(few: SparkSession) -> None:
    jobs = [
        job("clean-a", sink_topic="mid", bytes_out_rate=None),
        job("clean-b", source_site="edge-b", sink_topic="mid", bytes_out_rate=9.0),
        job("merge", source_site="cloud", source_topic="mid"),
    ]
    places = [site("edge-a"), site("edge-b"), site("cloud")]
    ranking = next(row for row in rank(few, jobs, places) if row.job_name == "merge")
    assert (ranking.wan_bytes_saved_per_s, ranking.score) == (None, None)
    assert ranking.against == ["the shares of sites in its input are unknown"]


def test_an_edge_that_is_not_calibrated_lowers_the_confidence(few: SparkSession) -> None:
    (ranking,) = rank(few, [job("A")], [site("edge-a", pace=None), site("cloud")])
    assert ranking.confidence == "medium"


def test_a_frame_that_breaks_the_contract_is_refused_by_its_step(few: SparkSession) -> None:
    wrong = few.createDataFrame([("c", 1)], "composition string, job_name int")
    with pytest.raises(PermanentError, match="cannot walk: column 'job_name' of origins is int"):
        ORIGINS.check(wrong, "walk")
    with pytest.raises(PermanentError, match="cannot walk: column 'edge' of origins is missing"):
        ORIGINS.check(
            few.createDataFrame([("c", "j")], "composition string, job_name string"), "walk"
        )
