"""Applying against a revision, and again under the same key."""

from __future__ import annotations

import threading

import pytest

from speck.errors import ConflictError, StaleRevisionError
from speck.model.accepted import Accepted
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, composition, engine, job_body, states
from tests.waiting import wait_for

A, B = job_body("A"), job_body("B", "cloud")


def test_if_match_of_another_revision_is_stale(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    service.compositions.apply(composition(A, B), ApplyRequest(wait_s=LIMIT_S, if_match=1))
    with pytest.raises(StaleRevisionError) as error:
        service.compositions.apply(composition(A), ApplyRequest(if_match=1))
    assert str(error.value) == (
        "cannot change composition 'c': its newest revision is 2, not 1 as in If-Match;"
        " it was changed meanwhile: plan and apply again"
    )
    assert states(service) == {"A": "running", "B": "running"}


def test_an_idempotency_key_replays_the_first_answer(service: Service) -> None:
    request = ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1")
    first = service.compositions.apply(composition(A), request)
    service.compositions.apply(composition(A, B), DONE)
    again = service.compositions.apply(composition(A), request)
    assert again.done
    assert again.change == first.change
    unwaited = service.compositions.apply(composition(A), ApplyRequest(idempotency_key="k-1"))
    assert unwaited.under_way
    assert unwaited.change == first.change
    assert states(service) == {"A": "running", "B": "running"}


def test_a_replay_waits_for_the_change_that_it_names(service: Service) -> None:
    engine("edge-a").hold_starts = True
    first = service.compositions.apply(composition(A), ApplyRequest(idempotency_key="k-1"))
    answers: list[Accepted] = []
    request = ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1")
    waiting = threading.Thread(
        target=lambda: answers.append(service.compositions.apply(composition(A), request))
    )
    waiting.start()
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    engine("edge-a").let_go()
    waiting.join(LIMIT_S)
    (again,) = answers
    assert again.done
    assert again.change == first.change


def test_an_idempotency_key_is_kept_for_a_day(service: Service) -> None:
    request = ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1")
    first = service.compositions.apply(composition(A), request)
    ((key, record),) = service.records.store.scan("idem/")
    service.records.write({key: {**record, "at": "2020-01-01T00:00:00.000Z"}})
    service.compositions.apply(composition(A, B), DONE)
    again = service.compositions.apply(composition(A), request)
    assert again.revision == 3
    assert again.change != first.change


def test_to_apply_what_is_there_makes_no_change(service: Service) -> None:
    first = service.compositions.apply(composition(A), DONE)
    request = ApplyRequest(idempotency_key="k-1")
    again = service.compositions.apply(composition(A), request)
    assert again.done
    assert again.change == first.change
    assert len(service.changes.all()) == 1
    service.compositions.apply(composition(A, B), DONE)
    late = service.compositions.apply(composition(A), request)  # it was carried out before
    assert late.change == first.change
    assert states(service) == {"A": "running", "B": "running"}
    other = composition(A, B, inputs=[{"site": "edge-a", "topic": "A-in"}])
    assert service.compositions.apply(other, DONE).revision == 3


def test_an_idempotency_key_with_another_body_is_refused(service: Service) -> None:
    service.compositions.apply(composition(A), ApplyRequest(wait_s=LIMIT_S, idempotency_key="k-1"))
    with pytest.raises(ConflictError) as error:
        service.compositions.apply(composition(B), ApplyRequest(idempotency_key="k-1"))
    assert str(error.value) == "cannot use Idempotency-Key 'k-1': it came with another body"
