"""Where polls are made: here for simulated or few sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.binding import BrokerPoll, EnginePoll
from speck.model.observation import BrokerView, EngineView
from speck.service import Service
from speck.sites.pollers.polling import Polling
from tests.memory_fog import memory_service, site_body


def polling_of(service: Service, from_sites: int) -> Polling:
    return Polling(service.connections, lambda: len(service.records.sites()), 1, from_sites)


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
