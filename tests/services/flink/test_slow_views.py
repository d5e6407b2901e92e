"""An engine whose views are cached for seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from speck.binding import SavedState
from speck.errors import TransientError
from speck.model.observation import RunState
from tests.flink_server import flink_cluster
from tests.services.flink.site import Site
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def slow_views(tmp_path_factory: pytest.TempPathFactory, trial_jar: Path) -> Iterator[Site]:
    """An engine with Flink's own caches of 3 s, small requests, and a minute between restarts."""
    config = {
        "rest.cache.execution-graph.timeout": "3 s",
        "rest.cache.checkpoint-statistics.timeout": "3 s",
        "rest.server.max-content-length": "200000",
        "restart-strategy.fixed-delay.delay": "60 s",
        "heartbeat.timeout": "50000",
        "execution.checkpointing.num-retained": "1",
        "rest.async.store-duration": "5 min",
        "metrics.fetcher.update-interval": "10000",
    }
    folder = tmp_path_factory.mktemp("slow-views")
    with flink_cluster(folder, slots=2, config=config) as server:
        yield Site(server, trial_jar)


@pytest.mark.long
def test_a_job_between_two_tries_is_restarting(slow_views: Site) -> None:
    job = slow_views.start("--fail-task")
    slow_views.becomes(job, RunState.RESTARTING)
    assert slow_views.engine.view().jobs[job].state is RunState.RESTARTING
    slow_views.tidy()


@pytest.mark.long
def test_the_newest_checkpoint_is_not_one_out_of_a_cache(slow_views: Site) -> None:
    job = slow_views.run()

    def newest_known() -> SavedState | None:
        with suppress(TransientError):  # all that the cache lists may be gone by now
            return slow_views.engine.newest_state(job)
        return None

    checkpoint = wait_for(newest_known, "a checkpoint")
    wait_for(
        lambda: slow_views.newest_folder(job) > checkpoint.number,
        "a checkpoint that the engine's cache does not hold",
    )
    slow_views.engine.cancel(job)
    wait_for(lambda: slow_views.engine.view().jobs[job].state.terminal, "its end")
    newest = slow_views.engine.newest_state(job)
    assert newest is not None
    assert newest.number == slow_views.newest_folder(job)


@pytest.mark.long
def test_check_names_what_is_wrong_and_mends_it(slow_views: Site) -> None:
    mends = {finding.setting: finding.mend for finding in slow_views.engine.check()}
    assert mends == {
        "heartbeat.timeout": "heartbeat.timeout: 10000",
        "execution.checkpointing.num-retained": "execution.checkpointing.num-retained: 5",
        "rest.async.store-duration": "rest.async.store-duration: 1h",
        "metrics.fetcher.update-interval": "metrics.fetcher.update-interval: 2000",
        "rest.cache.execution-graph.timeout": "rest.cache.execution-graph.timeout: 500",
        "rest.cache.checkpoint-statistics.timeout": (
            "rest.cache.checkpoint-statistics.timeout: 500"
        ),
    }
