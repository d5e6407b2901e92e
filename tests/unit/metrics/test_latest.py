"""The newest samples: what is kept of each poll, and when it is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from speck.metrics.latest import LatestSamples
from speck.model.incarnation import Incarnation
from speck.model.link import Link
from speck.model.measurement import BrokerMeasures, EngineMeasures, JobMeasure, TaskMeasure
from speck.model.observation import BrokerView
from tests.sample_job import make_job

LINK = Link("b", "T-1")
JOB = make_job("A", LINK, Link("a", "T-2"), "a")
RUN = Incarnation(JOB, 1, "1")
AT = datetime(2026, 3, 1, tzinfo=UTC)


def measure(records: int, busy_ms: float) -> EngineMeasures:
    task = TaskMeasure("v", "x", 0, 1, True, True, busy_ms, 0.0, 0.0, records, records)
    return EngineMeasures({"1": JobMeasure("1", (task,), restarts=0)}, slots_total=4)


def test_a_rate_is_between_the_last_two_different_samples() -> None:
    latest = LatestSamples()
    latest.put_engine("a", AT, measure(100, 1000.0))
    assert latest.rate_job(RUN).in_rate is None
    latest.put_engine("a", AT + timedelta(seconds=5), measure(200, 2000.0))
    assert latest.rate_job(RUN).in_rate == 100.0
    latest.put_engine("a", AT + timedelta(seconds=10), measure(200, 2000.0))  # from a cache
    assert latest.rate_job(RUN).in_rate == 100.0


def test_the_lag_is_that_of_the_job_s_reader_at_its_source() -> None:
    latest = LatestSamples()
    row = {"client_id": "x", "role": "producer", "job_name": "A", "lag": None}
    rows = [row, {**row, "role": "reader", "lag": 7}]
    assert latest.put_broker("b", BrokerMeasures(), BrokerView({}, {}), rows) == rows
    assert latest.rate_job(RUN).lag == 7
    assert latest.list_links() == latest.list_links("b") == rows


def test_a_part_that_does_not_answer_is_forgotten_alone() -> None:
    latest = LatestSamples()
    latest.put_engine("a", AT, measure(1, 1.0))
    latest.put_broker("a", BrokerMeasures(queued=3), BrokerView({}, {}), [])
    polled = latest.polled("a")
    latest.forget("engine", "a")
    assert latest.polled("a") > polled
    assert (latest.engine("a"), latest.rate_job(RUN).records_in) == (None, None)
    assert latest.broker("a") == BrokerMeasures(queued=3)
    latest.forget("broker", "a")
    latest.forget("broker", "b")  # never answered
    assert latest.broker("a") is None


def test_a_site_that_was_removed_has_no_samples() -> None:
    latest = LatestSamples()
    latest.put_engine("a", AT, measure(1, 1.0))
    latest.put_engine("b", AT, measure(1, 1.0))
    latest.keep_only({"b"})
    assert (latest.engine("a"), latest.engine("b") is None) == (None, False)
    assert latest.polled("a") == 0
