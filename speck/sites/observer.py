"""Polls all sites concerned concurrently, with a time limit for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor

from speck.binding import BrokerPoll, EnginePoll
from speck.errors import SpeckError
from speck.model.observation import BrokerView, EngineView, Observation
from speck.sites.pollers.polling import Polling

_Answer = EngineView | BrokerView | str
"""The report of an engine or a broker, or why there is none."""


def make_pool(workers: int, name: str) -> Executor:
    """At most so many threads."""
    return ThreadPoolExecutor(workers, thread_name_prefix=name)


def observe(
    polling: Polling,
    engines: Iterable[str],
    brokers: Iterable[str] = (),
    pool: Callable[[int, str], Executor] = make_pool,
) -> Observation:
    """Return the current reports of the engines and brokers of the named sites.

    A site that does not answer within its time limit, or refuses, is listed only in
    `unreachable`, with the reason.
    """
    return begin_observing(polling, engines, brokers, pool)()


def begin_observing(
    polling: Polling,
    engines: Iterable[str],
    brokers: Iterable[str] = (),
    pool: Callable[[int, str], Executor] = make_pool,
) -> Callable[[], Observation]:
    """Ask all these engines and brokers at once; what is returned waits for the answers. `pool`
    gives threads: how many, and their name."""
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
        threads = pool(min(32, len(awaiting)), "observe")
        awaiting = [threads.submit(_await_answer, answer).result for answer in awaiting]
        threads.shutdown(wait=False)  # they end when they have answered

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
