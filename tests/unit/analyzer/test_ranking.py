"""The order of jobs for the edge, and the objections to each."""

from __future__ import annotations

from datetime import datetime

import pytest

from speck.model.values import JsonObject
from tests.rows_of_jobs import job, rank, site


def names(rows: list[JsonObject]) -> list[str]:
    return [row["job_name"] for row in rows]


def test_by_bytes_saved_for_each_core_second_of_the_edge() -> None:
    ranking = rank(
        [job("dear", saved=4000, cost=0.01), job("cheap", saved=1000), job("wider", saved=-200)],
    )
    assert names(ranking) == ["cheap", "dear", "wider"]
    # 1 ms of the reference's core, 100 times a second, at half its speed
    assert ranking[0]["edge_core_s_per_s"] == pytest.approx(0.2)
    assert ranking[0]["score"] == pytest.approx(1000 / 0.2)
    assert ranking[2]["against"] == ["it sends 200 B/s more than it receives"]


def test_on_ties_those_without_state_come_first() -> None:
    ranking = rank(
        [
            job("keeps", saved=1005, stateful=True, state_bytes=7),
            job("unknown", saved=1003, stateful=None),
            job("keeps-not", saved=1000),
            job("less", saved=900),
            job("much-more", saved=2000, stateful=True),
        ],
    )
    assert names(ranking) == ["much-more", "keeps-not", "unknown", "keeps", "less"]
    assert ranking[3]["against"] == ["stateful: a move transfers 7 bytes"]


def test_what_is_against_a_job_is_told() -> None:
    ranking = rank(
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
    against = {row["job_name"]: row["against"] for row in ranking}
    assert against["fixed"] == ["pinned"]
    assert against["large"] == ["edge-a has 2 free slots"]
    assert against["heavy"] == [
        "over the capacity of edge-a: 2.10 of 1.40 reference core-seconds per second"
    ]
    assert against["fed-by-cloud"] == ["its input does not come from an edge"]
    assert against["unknown"] == ["not ranked: busy for 0.2 s, less than 1 s"]
    assert against["there"] == []
    assert ranking[-1]["score"] is None


def test_a_job_is_fed_by_the_edge_that_the_jobs_before_it_read() -> None:
    chain = [
        job("first"),
        job("second", source_site="cloud", source_topic="first-out"),
        job("other", source_site="edge-b", sink_topic="first-out", bytes_out_rate=1.0),
    ]
    ranking = rank(chain, [site("edge-a"), site("edge-b"), site("cloud")])
    edges = {row["job_name"]: row["edge"] for row in ranking}
    assert edges == {"first": "edge-a", "second": "edge-a", "other": "edge-b"}


def test_a_job_fed_by_several_edges_saves_what_its_own_edge_feeds() -> None:
    """At an edge it spares that edge's part; the others' crosses as before."""
    clean = [
        job(f"clean-{e}", source_site=f"edge-{e}", sink_topic="mid", bytes_out_rate=rate)
        for e, rate in (("a", 2000.0), ("b", 1500.0), ("c", 1500.0))
    ]
    merge = job("merge", saved=4900, source_site="cloud", source_topic="mid")
    places = [site(f"edge-{e}") for e in "abc"] + [site("cloud")]
    ranking = next(row for row in rank([*clean, merge], places) if row["job_name"] == "merge")
    assert ranking["edge"] == "edge-a"
    assert ranking["wan_bytes_saved_per_s"] == pytest.approx(0.4 * 5000 - 100)
    assert ranking["against"] == ["only 40 % of its input comes from edge-a"]
    assert "sends 100 B/s of the 2000 B/s that it receives from edge-a" in ranking["reasons"]


def test_what_arises_at_the_cloud_would_have_to_come_down() -> None:
    jobs = [
        job("clean", sink_topic="mid", bytes_out_rate=1000.0),
        job("made-up", source_site="cloud", sink_topic="mid", bytes_out_rate=4000.0),
        job("merge", saved=4900, source_site="cloud", source_topic="mid"),
    ]
    ranking = next(row for row in rank(jobs) if row["job_name"] == "merge")
    assert ranking["wan_bytes_saved_per_s"] == pytest.approx(1000 - 4000 - 100)
    assert ranking["against"][1] == "3100 B/s more would be sent between sites"


def test_without_rates_of_those_that_feed_it_nothing_is_said_of_shares() -> None:
    jobs = [
        job("clean-a", sink_topic="mid", bytes_out_rate=None),
        job("clean-b", source_site="edge-b", sink_topic="mid", bytes_out_rate=9.0),
        job("merge", source_site="cloud", source_topic="mid"),
    ]
    places = [site("edge-a"), site("edge-b"), site("cloud")]
    ranking = next(row for row in rank(jobs, places) if row["job_name"] == "merge")
    assert (ranking["wan_bytes_saved_per_s"], ranking["score"]) == (None, None)
    assert ranking["against"] == ["the shares of sites in its input are unknown"]


def test_an_edge_that_is_not_calibrated_lowers_the_confidence() -> None:
    (ranking,) = rank([job("A")], [site("edge-a", core_speed=None), site("cloud")])
    assert ranking["confidence"] == "medium"


def test_a_job_with_no_score_has_no_rank() -> None:
    idle = job("idle", in_rate=0.0, out_rate=0.0, bytes_in_rate=0.0, bytes_out_rate=0.0, cost=None)
    ranking = rank([job("busy"), idle])
    assert [(row["job_name"], row["rank"]) for row in ranking] == [("busy", 1), ("idle", None)]


def test_input_of_an_inner_broker_at_an_edge_does_not_come_from_that_edge() -> None:
    """Its broker is at edge-c, where 38 % of what it carries enters the system."""
    places = [site(f"edge-{e}") for e in "abc"] + [site("cloud")]
    rows = {}
    for broker in ("cloud", "edge-c"):
        clean = [
            job(f"clean-{e}", source_site=f"edge-{e}", sink_site=broker, sink_topic="mid",
                bytes_out_rate=rate)
            for e, rate in (("a", 3100.0), ("b", 3100.0), ("c", 3800.0))
        ]  # fmt: skip
        merge = job("merge", site=broker, source_site=broker, source_topic="mid",
                    bytes_in_rate=10_000.0, bytes_out_rate=100.0)  # fmt: skip
        ranking = rank([*clean, merge], places)
        rows[broker] = next(row for row in ranking if row["job_name"] == "merge")
    away, there = rows["cloud"], rows["edge-c"]
    assert away["origins"] == there["origins"]
    assert away["origins"][0] == {"site": "edge-c", "share": pytest.approx(0.38)}
    for figure in ("rank", "edge", "score", "wan_bytes_saved_per_s"):
        assert away[figure] == there[figure]
    for row in (away, there):
        assert "only 38 % of its input comes from edge-c" in row["against"]


def test_a_job_without_input_is_its_own_origin_wherever_it_is() -> None:
    """Neither its site nor its broker makes an edge the origin of what it writes."""
    silent = {"in_rate": 0.0, "bytes_in_rate": 0.0, "sink_topic": "mid"}
    unwired = {"source_site": None, "source_topic": None, "sink_topic": "mid"}
    for more in (silent, unwired):
        made = job("made", site="edge-a", sink_site="edge-a", **more)
        merge = job("merge", source_topic="mid")
        by_name = {row["job_name"]: row for row in rank([made, merge])}
        for name in ("made", "merge"):
            assert by_name[name]["origins"] == [{"job": "made", "share": 1.0}]
            assert (by_name[name]["edge"], by_name[name]["score"]) == (None, None)
            assert by_name[name]["against"][0] == "it has no input, or that of jobs that have none"


def test_what_outsiders_send_beside_jobs_enters_at_their_broker() -> None:
    """The link carries 5000 B/s, of which a job that edge-b feeds writes 2000."""
    clean = job("clean", source_site="edge-b", sink_site="edge-a", sink_topic="mid",
                out_rate=40.0, bytes_out_rate=2000.0)  # fmt: skip
    places = [site("edge-a"), site("edge-b"), site("cloud")]
    for is_input, expected in ((True, {"edge-a": 0.6, "edge-b": 0.4}), (False, {"edge-b": 1.0})):
        merge = job("merge", source_topic="mid", source_is_input=is_input)
        (row,) = [row for row in rank([clean, merge], places) if row["job_name"] == "merge"]
        shares = {each["site"]: each["share"] for each in row["origins"]}
        assert shares == pytest.approx(expected)


@pytest.mark.parametrize("known_by", ["plan", "end"])
def test_a_link_whose_writer_was_not_measured_is_not_fed_from_outside(known_by: str) -> None:
    """Its broker is at an edge, but what its writer sends comes from the cloud."""
    at = datetime(2026, 1, 1)
    writer = {"composition": "c", "job_name": "writer", "at": at, "source_site": "cloud",
              "source_topic": "in", "sink_site": "edge-a", "sink_topic": "mid"}  # fmt: skip
    end = {"composition": "c", "broker_site": "edge-a", "topic": "mid", "role": "producer",
           "client_id": "w", "job_name": "writer", "engine_site": "cloud", "last_at": at,
           "records_per_s": None, "lag": None, "lag_per_s": None, "lag_fit": None}  # fmt: skip
    plans, ends = ([writer], []) if known_by == "plan" else ([], [end])
    (row,) = rank([job("reader", source_topic="mid")], plans=plans, ends=ends)
    assert row["edge"] is None
    (alone,) = rank([job("reader", source_topic="mid")])
    assert alone["edge"] == "edge-a"


def test_a_writer_without_evidence_leaves_the_shares_unknown() -> None:
    clean = [job(f"clean-{e}", source_site=f"edge-{e}", sink_topic="mid") for e in "ab"]
    clean[0] |= {"rate_evidence": "insufficient", "evidence": "insufficient"}
    merge = job("merge", source_site="cloud", source_topic="mid")
    places = [site("edge-a"), site("edge-b"), site("cloud")]
    (row,) = [row for row in rank([*clean, merge], places) if row["job_name"] == "merge"]
    assert [each["share"] for each in row["origins"]] == [None, None]
    assert (row["score"], row["rank"]) == (None, None)
