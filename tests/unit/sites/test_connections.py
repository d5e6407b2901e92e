"""Binders are opened once for each address, when they are needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from binders.memory import World
from speck.errors import NotFoundError, PermanentError
from speck.sites.connections import Connections
from speck.spec.site_schema import site_from_data
from tests.memory_fog import site_body


@pytest.fixture(autouse=True)
def _new_world() -> None:
    """Without what another test of this process has left at these addresses."""
    World.reset()


def connections(folder: Path, **more: object) -> Connections:
    body = site_body("edge-a")
    site = site_from_data({**body, "broker": {**body["broker"], **more}})
    return Connections(lambda: {"edge-a": site}, folder)


def test_everybody_shares_one_binder_of_an_address(tmp_path: Path) -> None:
    opened = connections(tmp_path)
    assert opened.engine("edge-a") is opened.engine("edge-a")
    assert opened.broker("edge-a") is opened.broker("edge-a")


def test_an_unknown_site_says_how_to_register_it(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as error:
        connections(tmp_path).engine("edge-z")
    assert (
        str(error.value)
        == "cannot find site 'edge-z'; register it (speck site add, or POST /sites)"
    )


def test_missing_credentials_are_named_with_their_folder(tmp_path: Path) -> None:
    opened = connections(tmp_path, credentials="edge-a")
    with pytest.raises(PermanentError) as error:
        opened.broker("edge-a")
    assert str(error.value) == (
        f"cannot use credentials 'edge-a': no file of that name in {tmp_path}"
    )
    (tmp_path / "edge-a").write_text("user=x\n")
    opened.broker("edge-a")


def test_an_address_that_changes_gets_a_binder_of_its_own(tmp_path: Path) -> None:
    sites = {"edge-a": site_from_data(site_body("edge-a"))}
    opened = Connections(lambda: sites, tmp_path)
    before = opened.engine("edge-a")
    sites["edge-a"] = site_from_data(site_body("edge-a", host="elsewhere"))
    assert opened.engine("edge-a") is not before


def test_after_close_binders_are_opened_anew(tmp_path: Path) -> None:
    opened = connections(tmp_path)
    before = opened.engine("edge-a")
    opened.close()
    assert opened.engine("edge-a") is not before


def test_a_visit_to_a_broker_asks_nothing_of_the_engine_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    body = site_body("edge-a")
    no_engine = site_from_data({**body, "spe": {**body["spe"], "kind": "storm"}})
    no_broker = site_from_data({**body, "broker": {**body["broker"], "credentials": "gone"}})
    opened = connections(tmp_path)
    with opened.visit_broker(no_engine, 1.0) as broker:
        assert broker.reach()
    with opened.visit_engine(no_broker, 1.0) as engine:
        assert engine.jobs() == {}
    with pytest.raises(PermanentError), opened.visit_engine(no_engine, 1.0):
        pass
    with pytest.raises(PermanentError), opened.visit_broker(no_broker, 1.0):
        pass
