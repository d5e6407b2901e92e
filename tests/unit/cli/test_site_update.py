"""`speck site update`: each of its options, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from binders.memory import World
from speck.model.values import JsonObject
from tests.memory_fog import site_body
from tests.unit.cli.conftest import Run


@pytest.fixture
def deployed(speck: Run, chain: str) -> Run:
    assert speck("apply", "-y", chain).exit_code == 0
    return speck


def show(speck: Run, name: str) -> JsonObject:
    record: JsonObject = json.loads(speck("site", "show", name, "-o", "json").stdout)
    return record


def test_a_site_is_updated_by_each_of_its_options(speck: Run) -> None:
    before = show(speck, "edge-b")
    result = speck(
        *("site", "update", "edge-b", "--engine", "http://b-2.test:8081/"),
        *("--broker", "TCP://b-2.test", "--uplink-mbps", "2.5"),
        *("--label", "room=4", "--label", "line=a=b"),
    )
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "site edge-b changed\n"
    site = show(speck, "edge-b")
    assert site["spe"]["address"] == "http://b-2.test:8081"
    assert site["broker"]["address"] == "tcp://b-2.test:1883"
    assert (site["tier"], site["uplink_mbps"]) == (before["tier"], 2.5)
    assert site["labels"] == {**before["labels"], "room": "4", "line": "a=b"}
    speck("site", "update", "edge-b", "--label", "room=5")
    kept = {**site, "labels": {**site["labels"], "room": "5"}}
    now = show(speck, "edge-b")
    assert now == {**kept, "last_seen": now["last_seen"], "polled_at": now["polled_at"]}


def test_programs_are_run_beside_the_engine(speck: Run) -> None:
    result = speck("site", "update", "edge-b", "--beside", "process")
    assert result.exit_code == 0, result.stderr
    assert show(speck, "edge-b")["spe"]["beside"] == {"kind": "process"}
    result = speck("site", "update", "edge-b", "--beside", "proces")
    assert "--beside: " in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "give a NAME with what changes, or --file"),
        (
            ("edge-b",),
            "give what changes: --engine, --broker, --credentials, --engine-credentials, --beside,",
        ),
        (("edge-b", "-f", "sites.json"), "give a NAME with what changes, or --file"),
        (("-f", "sites.json", "--broker", "tcp://b"), "--broker changes the site NAME"),
        (("edge-b", "--brokr", "tcp://b"), "Did you mean one of: '--broker'"),
        (("edg-b", "--broker", "tcp://b"), "cannot find site 'edg-b'"),
        (("edge-b", "--broker", "b:1883"), "--broker: 'b:1883' is not an address like kafka://"),
        (("edge-b", "--broker", ""), "--broker: "),
        (("edge-b", "--engine", "tcp://b:8081"), "--engine: 'tcp://b:8081' is not an address"),
        (("edge-b", "--broker", "tcp://a..b"), "--broker: "),
        (("edge-b", "--uplink-mbps", "fast"), "'fast' is not a valid float"),
        (("edge-b", "--uplink-mbps", "-1"), "'--uplink-mbps'"),
        (("edge-b", "--label", "room"), "write a --label as KEY=VALUE"),
        (("edge-b", "--label", "room=1", "--label", "room=2"), "give each --label once"),
        (("edge-b", "--broker", "tcp://cloud.test:1883"), "belongs to cloud"),
        (("edge-b", "--engine", "http://cloud.test:8081"), "belongs to cloud"),
    ],
)
def test_a_wrong_update_says_what_is_wrong_and_changes_nothing(
    speck: Run, args: tuple[str, ...], says: str
) -> None:
    before = show(speck, "edge-b")
    result = speck("site", "update", *args)
    assert result.exit_code != 0
    assert says in result.stderr
    assert show(speck, "edge-b") == before


def test_sites_are_updated_together_from_a_file(speck: Run, tmp_path: Path) -> None:
    file = tmp_path / "sites.json"

    def update(*bodies: JsonObject, options: tuple[str, ...] = ()) -> Result:
        file.write_text(json.dumps({"sites": bodies}))
        return speck("site", "update", "-f", str(file), *options)

    swapped = [site_body("edge-a", "edge-b.test"), site_body("edge-b", "edge-a.test")]
    refused = update(*swapped)
    assert "is that of site edge-b; if two sites have exchanged their addresses" in refused.stderr
    World.current().readdress(
        {
            f"{scheme}://{one}.test:{port}": f"{scheme}://{other}.test:{port}"
            for scheme, port in (("tcp", 1883), ("http", 8081))
            for one, other in (("edge-a", "edge-b"), ("edge-b", "edge-a"))
        }
    )
    done = update(*swapped)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "site edge-a changed\nsite edge-b changed\n"
    assert show(speck, "edge-a")["broker"]["address"] == "tcp://edge-b.test:1883"

    mistyped = update(swapped[0], site_body("edge-bb"))
    assert "cannot find site 'edge-bb'" in mistyped.stderr
    assert speck("site", "show", "edge-bb").exit_code == 1, "it was not registered"
    twice = update(swapped[0], swapped[0])
    assert "'edge-a' is listed twice" in twice.stderr
    assert "write a site or a list of sites" in update().stderr
    bad = update(swapped[0], {**swapped[1], "broker": {"kind": "memory", "address": "b"}})
    assert "sites[1].broker.address" in bad.stderr


def test_another_broker_is_accepted_by_its_flag_only(deployed: Run) -> None:
    refused = deployed("site", "update", "cloud", "--broker", "tcp://fresh.test")
    assert refused.exit_code == 1
    assert "accept a new broker (speck site update --new-broker" in refused.stderr
    mistyped = deployed("site", "update", "cloud", "--credentials", "cluod")
    assert "cannot use credentials 'cluod': no file of that name" in mistyped.stderr
    done = deployed("site", "update", "cloud", "--broker", "tcp://fresh.test", "--new-broker")
    assert done.exit_code == 0, done.stderr
    assert deployed("site", "update", "cloud", "--new-broker").exit_code == 0, "at its own address"
    assert deployed("site", "update", "cloud", "--new-agent").exit_code == 0
