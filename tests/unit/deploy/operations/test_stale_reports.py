"""What a sink reported of a link that it has left."""

from __future__ import annotations

from dataclasses import replace

from speck.model.ids import sink_client_id
from speck.model.incarnation import StaleSink
from speck.model.link_operations import Clear
from speck.model.observation import Sent
from tests.service_helpers import broker
from tests.unit.deploy.bench import DONE, Bench, job, start, states


def test_what_a_sink_said_is_cleared_by_the_next_plan_if_the_change_ended_before(
    bench: Bench,
) -> None:
    """The start is stored with what is left to clear, and the clearing takes it off the list."""
    gone, own = StaleSink("edge-b", job("B").sink, "speck-i-A-0-out"), start("A")
    bench.run((replace(own, stale=(gone,)), ()))
    deployed = bench.records.incarnations.get("c", "A")
    assert deployed is not None and deployed.stale == (gone,)
    broker("edge-b").sent[gone.client_id] = Sent("i-A", 1, 7)
    assert states(bench.run((Clear("edge-b", "A", gone.link, (gone.client_id,)), ()))) == [DONE]
    deployed = bench.records.incarnations.get("c", "A")
    assert deployed is not None and deployed.stale == ()
    assert broker("edge-b").sent == {}


def test_what_a_sink_says_of_the_link_that_it_has_again_is_not_cleared(bench: Bench) -> None:
    bench.run((start("A"), ()))
    own = sink_client_id(bench.records.installation, "A", job("A").source, job("A").sink)
    broker("edge-a").sent[own] = Sent("i-A", 1, 7)
    bench.run((Clear("edge-a", "A", job("A").sink, (own,)), ()))
    assert set(broker("edge-a").sent) == {own}
