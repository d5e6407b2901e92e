"""Machines get other addresses while their jobs run under a flow: nothing is lost or repeated.

Each site is registered under proxies before its engine and its broker. A machine that moves gets
new ones, and the old ones take no connection any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from bench.instruments.proxy import Proxy
from speck.cli.main import root
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.e2e.killable import Killable
from tests.mosquitto_server import mosquitto
from tests.waiting import wait_for

pytestmark = [pytest.mark.usefixtures("agents_back"), pytest.mark.long]


@dataclass
class Moving:
    """A service, and the proxies before the machines of the fog's sites."""

    speck: Killable
    stack: ExitStack = field(default_factory=ExitStack)
    proxies: dict[tuple[str, str], Proxy] = field(default_factory=dict)

    def move(self, site: str, part: str) -> str:
        """Give the `engine` or the `broker` of a site another address, which is returned."""
        before = self.proxies.get((site, part))
        if before is not None:
            before.close()
        proxy = self.stack.enter_context(Proxy("127.0.0.1", self.locate(site, part)))
        self.proxies[site, part] = proxy
        return proxy.http if part == "engine" else proxy.tcp

    def locate(self, site: str, part: str) -> tuple[str, int]:
        """Where the `engine` or the `broker` of a site listens."""
        body = next(each for each in self.speck.fog.site_bodies() if each["name"] == site)
        where = urlsplit(body["spe" if part == "engine" else "broker"]["address"])
        assert where.hostname is not None and where.port is not None
        return where.hostname, where.port

    def register(self) -> None:
        for body in self.speck.fog.site_bodies():
            spe = {**body["spe"], "address": self.move(body["name"], "engine")}
            broker = {**body["broker"], "address": self.move(body["name"], "broker")}
            site = {**body, "spe": spe, "broker": broker}
            answer = self.speck.call("POST", "/sites", json=site)
            assert answer.status_code == 201, answer.text
        self.speck.fog.start_agents(self.speck.url)

    def update(self, *args: str) -> Result:
        """`speck site update`."""
        return CliRunner().invoke(
            root, ["site", "update", *args], env={"SPECK_SERVER": self.speck.url}
        )

    def site(self, name: str) -> JsonObject:
        site: JsonObject = self.speck.call("GET", f"/sites/{name}").json()
        return {part: site[part] for part in ("name", "tier", "spe", "broker")}

    def attempts(self, site: str) -> dict[str, int]:
        """The attempts of the jobs that name the broker of a site."""
        jobs = self.speck.call("GET", "/jobs").json()["jobs"]
        return {
            job["job_name"]: job["attempt"]
            for job in jobs
            if site in (job["source_site"], job["sink_site"])
        }

    def await_followed(self, site: str, before: dict[str, int]) -> None:
        """Wait until the jobs that name the broker of a site have been started anew, and run."""

        def followed() -> bool:
            attempts = self.attempts(site)
            newer = all(attempts[name] > attempt for name, attempt in before.items())
            change = self.speck.newest_change()
            return newer and change is not None and change["state"] == "done"

        wait_for(followed, f"the jobs to follow the broker of {site}", 180.0)
        wait_for(self.speck.all_run, "all jobs to run")


@pytest.fixture
def moving(fog: Fog, jars: Path, tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(Killable(fog, tmp_path / "home", jars, "moving"))
    with moving.stack:
        yield moving


def exact(description: JsonObject) -> JsonObject:
    jobs = [{**job, "delivery": "exactly_once"} for job in description["jobs"]]
    return {**description, "jobs": jobs}


def test_jobs_follow_machines_that_get_other_addresses(moving: Moving, tmp_path: Path) -> None:
    speck = moving.speck
    with speck.running():
        moving.register()
        speck.apply(exact(speck.variant(0)))
        with speck.watched() as flow:
            flow.go_on()

            # the broker between the two jobs
            attempts = moving.attempts("cloud")
            assert set(attempts) == {"moving-pass", "moving-count"}
            address = moving.move("cloud", "broker")
            assert moving.update("cloud", "--broker", address).exit_code == 0
            moving.await_followed("cloud", attempts)
            flow.go_on()

            # what is not the site's own broker is refused, and changes nothing
            before = moving.site("cloud")
            with Proxy("127.0.0.1", moving.locate("edge-b", "broker")) as other:
                refused = moving.update("cloud", "--broker", other.tcp)
            assert refused.exit_code == 1
            assert "is that of site edge-b" in refused.stderr
            with mosquitto(tmp_path / "fresh") as fresh:
                refused = moving.update("cloud", "--broker", fresh.address)
            assert "is not the one that cloud had" in refused.stderr
            refused = moving.update("cloud", "--broker", "tcp://127.0.0.1:1")
            assert "it is not known whether the broker at tcp://127.0.0.1:1" in refused.stderr
            assert moving.site("cloud") == before
            flow.go_on()

            # an engine: its jobs are known by their ids, and go on without a restart
            ids = speck.on_engines()
            address = moving.move("cloud", "engine")
            assert moving.update("cloud", "--engine", address).exit_code == 0
            wait_for(speck.all_run, "all jobs to run")
            flow.go_on()
            assert speck.on_engines() == ids

            # both, of the site where the records come from; the service is killed in between
            attempts = moving.attempts("edge-a")
            broker, engine = moving.move("edge-a", "broker"), moving.move("edge-a", "engine")
            done = moving.update("edge-a", "--broker", broker, "--engine", engine)
            assert done.exit_code == 0, done.stderr
            wait_for(lambda: speck.changes()[0]["cause"] == "repair", "the jobs to be restarted")
            speck.kill()
            with speck.running():
                moving.await_followed("edge-a", attempts)
                flow.go_on()
        assert flow.count is not None
        assert (flow.count.repeated, flow.count.dropped) == (0, 0), flow.count
        with speck.running():
            speck.remove()
