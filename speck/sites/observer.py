"""Polls all sites concerned concurrently, with a time limit for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    def ask(target: tuple[bool, str]) -> Callable[[], EngineView | BrokerView] | str:
        is_engine, site = target
        try:
            if is_engine:
                return polling.ask_engine(site, EnginePoll.VIEW, urgent=True)
            return polling.ask_broker(site, BrokerPoll.VIEW, urgent=True)
        except SpeckError as error:
            return str(error)

    asked = [ask(target) for target in targets]
    answers = list(zip(targets, _await_all(asked, polling.apart), strict=True))
    return Observation(
        engines={site: a for (_, site), a in answers if isinstance(a, EngineView)},
        brokers={site: a for (_, site), a in answers if isinstance(a, BrokerView)},
        unreachable={site: a for (_, site), a in answers if isinstance(a, str)},
    )


def _await_all(
    asked: list[Callable[[], EngineView | BrokerView] | str], apart: bool
) -> list[EngineView | BrokerView | str]:
    """The answers; `apart`: all sites have been asked already, so that no threads are needed."""

    def wait(answer: Callable[[], EngineView | BrokerView] | str) -> EngineView | BrokerView | str:
        try:
            return answer() if callable(answer) else answer
        except SpeckError as error:
            return str(error)

    if apart:
        return [wait(answer) for answer in asked]
    with ThreadPoolExecutor(min(32, len(asked)), thread_name_prefix="observe") as pool:
        return list(pool.map(wait, asked))
