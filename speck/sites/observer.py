"""Looks at all sites concerned at the same time, with a time limit each."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from speck.errors import SpeckError
from speck.model.observation import BrokerView, EngineView, Observation
from speck.sites.connections import Connections


def observe(
    connections: Connections, engines: Iterable[str], brokers: Iterable[str] = ()
) -> Observation:
    """What the engines and brokers of the named sites say now.

    A site that does not answer within its time limit, or refuses, is in `unreachable` with
    the reason and in neither mapping.
    """
    asked = [(True, site) for site in sorted(set(engines))]
    asked += [(False, site) for site in sorted(set(brokers))]
    if not asked:
        return Observation({})

    def poll(question: tuple[bool, str]) -> EngineView | BrokerView | str:
        is_engine, site = question
        try:
            if is_engine:
                return connections.engine(site).view()
            return connections.broker(site).view()
        except SpeckError as error:
            return str(error)

    with ThreadPoolExecutor(min(32, len(asked)), thread_name_prefix="observe") as pool:
        answers = list(zip(asked, pool.map(poll, asked), strict=True))
    return Observation(
        engines={site: a for (_, site), a in answers if isinstance(a, EngineView)},
        brokers={site: a for (_, site), a in answers if isinstance(a, BrokerView)},
        unreachable={site: a for (_, site), a in answers if isinstance(a, str)},
    )
