"""Bounds that hold over all changes."""

from __future__ import annotations

import threading

from speck.deploy.execution import Bounds
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import LIMIT_S, composition, engine, job_body
from tests.waiting import wait_for


def is_refused(service: Service) -> bool:
    """Whether a change wants a turn at edge-a and has to wait for it."""
    return bool(service.executions.limiter._waiting["edge-a"])


def test_the_bound_of_a_site_holds_over_all_changes(service: Service) -> None:
    most = Bounds().per_site
    under_way, peak, lock = 0, 0, threading.Lock()
    full, go_on = threading.Event(), threading.Event()

    def hold(kind: str, subject: str) -> None:
        nonlocal under_way, peak
        if kind != "submit":
            return
        with lock:
            under_way += 1
            peak = max(peak, under_way)
            if under_way >= most:
                full.set()
        assert go_on.wait(LIMIT_S)
        with lock:
            under_way -= 1

    engine("edge-a").total = 4 * most
    engine("edge-a").before = hold
    for name in ("c", "d"):
        jobs = [job_body(f"{name}{number}") for number in range(most)]
        service.compositions.apply(composition(*jobs, name=name), ApplyRequest())
    assert full.wait(LIMIT_S)
    wait_for(lambda: peak > most or is_refused(service))
    go_on.set()
    wait_for(lambda: not service.changes.all_under_way())
    engine("edge-a").before = None
    assert peak == most
    assert len(engine("edge-a").running()) == 2 * most
