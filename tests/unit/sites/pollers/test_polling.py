"""Where polls are made: here for simulated or few sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speck.binding import Artifact, BrokerPoll, EnginePoll
from speck.model.observation import BrokerView, EngineView
from speck.service import Service
from speck.sites.connections import Connections
from speck.sites.pollers.polling import Polling
from speck.spec.site_schema import site_from_data
from tests.memory_fog import memory_service, site_body
from tests.third_party_kinds import third_party


def polling_of(service: Service, from_sites: int) -> Polling:
    return Polling(service.connections, lambda: len(service.records.sites.all()), 1, from_sites)


@pytest.mark.parametrize("from_sites", [1, 2])
def test_a_site_in_memory_is_always_polled_here(tmp_path: Path, from_sites: int) -> None:
    with memory_service(tmp_path, [site_body("edge-a")]) as service:
        polling = polling_of(service, from_sites)
        assert isinstance(polling.engine("edge-a", EnginePoll.VIEW), EngineView)
        assert polling.engine("edge-a", EnginePoll.CHECKPOINTING, ["0" * 32]) == {}
        assert polling.engine("edge-a", EnginePoll.MEASURE, []).jobs == {}
        assert isinstance(polling.broker("edge-a", BrokerPoll.VIEW), BrokerView)
        assert isinstance(polling.broker("edge-a", BrokerPoll.REACH), str)
        _, view = polling.broker("edge-a", BrokerPoll.MEASURE)
        assert isinstance(view, BrokerView)
        assert not polling.apart
        assert polling.pids == []
        polling.close()


class Channel:
    """The agent of a site, which has pushed a status."""

    def status(self) -> dict[str, Any]:
        about = {"version": "loom 1", "slots": 2, "free": 2, "turn": 1}
        return {**about, "runs": {}, "artifacts": {}, "folder": "/s"}

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def store(self, artifact: Artifact) -> None:
        raise NotImplementedError


def test_an_engine_whose_status_is_pushed_is_polled_where_it_is_pushed_to(tmp_path: Path) -> None:
    with third_party():
        broker = {"kind": "canal", "address": "canal://polled"}
        body = {"name": "edge-a", "tier": "edge", "spe": {"kind": "loom"}, "broker": broker}
        sites = {"edge-a": site_from_data(body)}
        connections = Connections(lambda: sites, tmp_path, channel=lambda site: Channel())
        polling = Polling(connections, lambda: 1000, 1, 1)
        assert polling.engine("edge-a", EnginePoll.VIEW).version == "loom 1"
        assert polling.engine("edge-a", EnginePoll.MEASURE, []).jobs == {}
        assert polling.engine("edge-a", EnginePoll.JOB_PLAN, ["0" * 32]) == ()
        assert polling.pids == []
        polling.close()
