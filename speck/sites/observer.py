"""Polls all sites concerned concurrently, with a time limit for each."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from speck.binding import BrokerPoll, EnginePoll
from speck.errors import SpeckError
from speck.model.observation import BrokerView, EngineView, Observation
from speck.sites.pollers.polling import Polling


def observe(polling: Polling, engines: Iterable[str], brokers: Iterable[str] = ()) -> Observation:
    """Return the current reports of the engines and brokers of the named sites.

    A site that does not answer within its time limit, or refuses, is listed only in
    `unreachable`, with the reason.
    """
    targets = [(True, site) for site in sorted(set(engines))]
    targets += [(False, site) for site in sorted(set(brokers))]
    if not targets:
        return Observation({})

    def poll(target: tuple[bool, str]) -> EngineView | BrokerView | str:
        is_engine, site = target
        try:
            view: EngineView | BrokerView
            if is_engine:
                view = polling.engine(site, EnginePoll.VIEW)
            else:
                view = polling.broker(site, BrokerPoll.VIEW)
            return view
        except SpeckError as error:
            return str(error)

    with ThreadPoolExecutor(min(32, len(targets)), thread_name_prefix="observe") as pool:
        answers = list(zip(targets, pool.map(poll, targets), strict=True))
    return Observation(
        engines={site: a for (_, site), a in answers if isinstance(a, EngineView)},
        brokers={site: a for (_, site), a in answers if isinstance(a, BrokerView)},
        unreachable={site: a for (_, site), a in answers if isinstance(a, str)},
    )
