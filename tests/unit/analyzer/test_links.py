"""One rate of a link, of what was measured at its ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from speck.analyzer.links import join_links
from speck.model.shown import render
from speck.model.values import JsonObject
from tests.rows_of_jobs import job

AT = datetime(2026, 1, 1)


def end(role: str, client_id: str, job_name: str | None = None, **more: Any) -> JsonObject:
    """What the broker knows of an end of the link `mid` at edge-a."""
    numbers = dict.fromkeys(("records_per_s", "lag", "lag_per_s", "lag_fit"))
    place = {"composition": "c", "broker_site": "edge-a", "topic": "mid", "role": role}
    names = {"client_id": client_id, "job_name": job_name, "engine_site": "cloud"}
    return {**place, **names, **numbers, "last_at": AT, **more}


def writer(rate: float = 100.0, **more: Any) -> JsonObject:
    more = {"name": "writer", "sink_site": "edge-a", "sink_topic": "mid", **more}
    return job(more.pop("name"), out_rate=rate, bytes_out_rate=50 * rate, **more)


def reader(rate: float = 100.0, **more: Any) -> JsonObject:
    more = {"name": "reader", "source_site": "edge-a", "source_topic": "mid", **more}
    return job(more.pop("name"), in_rate=rate, bytes_in_rate=50 * rate, **more)


WEAK = {"rate_evidence": "insufficient", "evidence": "insufficient", "rate_why": ["2 pairs"]}


def rate(*jobs: JsonObject, ends: tuple[JsonObject, ...] = ()) -> JsonObject:
    """The link `mid`."""
    return next(render(link) for link in join_links(jobs, ends) if link.topic == "mid")


def test_both_ends_agree_on_records_and_bytes() -> None:
    link = rate(writer(), reader())
    assert (link["records_per_s"], link["bytes_per_s"], link["difference"]) == (100.0, 5000.0, 0.0)
    assert (link["evidence"], link["why"], link["fed_outside"]) == ("sufficient", [], False)
    assert link["wan_bytes_per_s"] == 10_000.0  # both jobs are at the cloud


def test_records_and_bytes_are_of_the_same_samples() -> None:
    """The numbers at the broker cover another time; they are shown, and no part of the rate."""
    link = rate(reader(28.6), ends=(end("reader", "r", "reader", records_per_s=9.1),))
    (taken,) = link["readers"]
    assert (taken["records_per_s"], taken["bytes_per_s"]) == (28.6, 50 * 28.6)
    assert taken["counted_per_s"] == 9.1
    assert (link["records_per_s"], link["bytes_per_s"]) == (28.6, 50 * 28.6)


def test_ends_that_disagree_are_no_evidence() -> None:
    link = rate(writer(100.0), reader(40.0))
    assert (link["evidence"], link["difference"]) == ("insufficient", pytest.approx(0.6))
    assert link["why"] == ["its ends disagree: 40 and 100 records/s were measured"]
    few = rate(writer(0.03), reader(0.0))  # 18 records in all
    assert (few["evidence"], few["difference"]) == ("sufficient", 1.0)


def test_a_growing_queue_explains_the_difference() -> None:
    growing = end("reader", "r", "reader", lag=9000, lag_per_s=60.0, lag_fit=0.9)
    assert rate(writer(100.0), reader(40.0), ends=(growing,))["evidence"] == "sufficient"
    unsteady = {**growing, "lag_fit": 0.2}
    assert rate(writer(100.0), reader(40.0), ends=(unsteady,))["evidence"] == "insufficient"


def test_outsiders_explain_that_more_is_taken_than_sent() -> None:
    link = rate(writer(100.0), reader(300.0, source_is_input=True))
    assert (link["fed_outside"], link["evidence"]) == (True, "sufficient")
    assert link["records_per_s"] == 300.0
    seen = rate(writer(100.0), reader(300.0), ends=(end("producer", "sensor"),))
    assert (seen["fed_outside"], seen["records_per_s"]) == (True, 300.0)


def test_an_end_without_evidence_leaves_the_rate_to_the_other() -> None:
    one_end = rate(writer(70.0, **WEAK), reader(100.0))
    assert (one_end["records_per_s"], one_end["difference"]) == (100.0, None)
    assert [each["evidence"] for each in one_end["producers"]] == ["insufficient"]
    assert one_end["producers"][0]["why"] == ["2 pairs"]
    other_end = rate(writer(100.0), reader(7.0, **WEAK))
    assert (other_end["records_per_s"], other_end["evidence"]) == (100.0, "sufficient")
    neither = rate(writer(**WEAK), reader(**WEAK))
    assert (neither["records_per_s"], neither["evidence"]) == (None, "insufficient")
    assert neither["why"] == ["neither its writers nor its readers were measured"]


def test_a_writer_without_evidence_is_not_taken_for_nothing() -> None:
    """What the others send is less than the link carries."""
    two = (writer(100.0), writer(name="second", **WEAK))
    assert rate(*two)["evidence"] == "insufficient"
    assert rate(*two, reader(150.0))["records_per_s"] == 150.0


def test_a_link_of_two_compositions_has_one_rate() -> None:
    links = [
        link
        for link in join_links([writer(100.0), reader(40.0, composition="d")], [])
        if link.topic == "mid"
    ]
    assert [(link.composition, link.difference) for link in links] == [
        ("c", pytest.approx(0.6)),
        ("d", pytest.approx(0.6)),
    ]
    assert [len(link.producers) for link in links] == [1, 0]


def test_an_end_without_bytes_gets_the_mean_size_and_is_no_evidence() -> None:
    silent = {**writer(10.0), "bytes_out_rate": None, "bytes_out_per_record": None}
    link = rate(silent, reader(10.0))
    (sent,) = link["producers"]
    assert (sent["bytes_per_s"], sent["evidence"]) == (500.0, "insufficient")
    assert sent["why"] == ["bytes out are not reported"]
    assert link["evidence"] == "sufficient"  # by its reader


def test_ends_that_no_job_of_the_analysis_has_are_shown_too() -> None:
    ends = (
        end("reader", "old", "gone", records_per_s=3.0, last_at=datetime(2025, 1, 1)),
        end("reader", "new", "gone", records_per_s=4.0),
        end("reader", "dashboard", lag=5),
    )
    link = rate(writer(), ends=ends)
    assert [(each["client_id"], each["records_per_s"]) for each in link["readers"]] == [
        ("dashboard", None),
        ("new", 4.0),
    ]
    assert link["readers"][1]["why"] == ["it is not in the analysis"]
    stopped = join_links([writer(ended=True)], [])
    assert stopped == []
