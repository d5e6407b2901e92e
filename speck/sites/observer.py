"""Polls all sites concerned concurrently, with a time limit for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from speck.binding import BrokerPoll, EnginePoll
from speck.errors import SpeckError
from speck.model.observation import BrokerView, EngineView, Observation
from speck.sites.pollers.polling import Polling

_Answer = EngineView | BrokerView | str
"""The report of an engine or a broker, or why there is none."""


def observe(polling: Polling, engines: Iterable[str], brokers: Iterable[str] = ()) -> Observation:
    """Return the current reports of the engines and brokers of the named sites.

    A site that does not answer within its time limit, or refuses, is listed only in
    `unreachable`, with the reason.
    """
    return begin_observing(polling, engines, brokers)()


def begin_observing(
    polling: Polling, engines: Iterable[str], brokers: Iterable[str] = ()
) -> Callable[[], Observation]:
    """Ask all these engines and brokers at once; what is returned waits for the answers."""
    targets = [(True, site) for site in sorted(set(engines))]
    targets += [(False, site) for site in sorted(set(brokers))]
    if not targets:
        return lambda: Observation({})

    def ask(target: tuple[bool, str]) -> Callable[[], _Answer]:
        is_engine, site = target
        try:
            if is_engine:
                return polling.ask_engine(site, EnginePoll.VIEW, urgent=True)
            return polling.ask_broker(site, BrokerPoll.VIEW, urgent=True)
        except SpeckError as error:
            reason = str(error)
            return lambda: reason

    awaiting = [ask(target) for target in targets]
    if not polling.apart:  # no poller has the requests: it takes threads to make them
        pool = ThreadPoolExecutor(min(32, len(awaiting)), thread_name_prefix="observe")
        awaiting = [pool.submit(_await_answer, answer).result for answer in awaiting]
        pool.shutdown(wait=False)  # they end when they have answered

    def await_all() -> Observation:
        answers = [
            (target, _await_answer(answer))
            for target, answer in zip(targets, awaiting, strict=True)
        ]
        return Observation(
            engines={site: a for (_, site), a in answers if isinstance(a, EngineView)},
            brokers={site: a for (_, site), a in answers if isinstance(a, BrokerView)},
            unreachable={site: a for (_, site), a in answers if isinstance(a, str)},
        )

    return await_all


def _await_answer(answer: Callable[[], _Answer]) -> _Answer:
    try:
        return answer()
    except SpeckError as error:
        return str(error)
