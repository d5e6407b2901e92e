"""A fog and a service whose engines, brokers and service are killed at random moments.

Each site keeps its state to itself and has an agent, as in the fault suite: after the death of an
engine its jobs are found again by their checkpoints. What was killed is started again at once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import requests

from bench.common import Api, await_agents, end_well_when_told, say
from speck.fog.paths import edge_jar
from speck.fog.service import Served, serving
from speck.fog.site_record import MOSQUITTO
from speck.fog.sites import Fog

KINDS = ("engine", "broker", "service")


class Mortal:
    """A service over a fog that can be killed and comes back at the same address."""

    def __init__(self, fog: Fog, home: Path) -> None:
        self.fog = fog
        self.killed: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._home = home
        self._life = ExitStack()
        self._served: Served | None = None
        self._begin()
        assert self._served is not None
        self.api = Api(self._served.url)

    def strike(
        self,
        dice: random.Random,
        before_broker: Callable[[str], None],
        kinds: Sequence[str] = KINDS,
    ) -> str:
        """Kill a random process of `kinds` and start it again; returns its name. `before_broker` is
        called with the site of a broker before that is killed."""
        what = dice.choice(kinds)
        site = dice.choice([site.name for site in self.fog.sites()])
        self.killed[what] += 1
        if what == "service":
            self._kill_service()
            self._begin()
            return "service"
        if what == "broker":
            before_broker(site)
        self.fog.kill(site, what)
        self.fog.start(site)
        return f"{what} of {site}"

    def close(self) -> None:
        """End the service."""
        self._life.close()

    def _begin(self) -> None:
        self._life = ExitStack()
        port = urlsplit(self._served.url).port if self._served else None
        jars = edge_jar("speck-jobs.jar").parent
        self._served = self._life.enter_context(serving(self._home, [jars], port=port or 0))

    def _kill_service(self) -> None:
        """SIGKILL to it and its workers."""
        assert self._served is not None
        process = self._served.process
        command = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
        pids = subprocess.run(command, capture_output=True, text=True).stdout.split()
        for pid in (process.pid, *map(int, pids)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self._life.close()


@contextmanager
def mortal_fog(
    slots: int, checkpoint_interval_s: float, cloud_broker: str = MOSQUITTO
) -> Iterator[Mortal]:
    """Two edges and a cloud with an agent each, registered with a service; gone afterwards."""
    end_well_when_told()
    with tempfile.TemporaryDirectory(prefix="speck-bench-") as folder:
        fog = Fog(Path(folder) / "fog")
        try:
            say("bringing up 3 sites with agents")
            fog.up(
                edges=2,
                slots=slots,
                cloud_slots=slots,
                checkpoint_interval_s=checkpoint_interval_s,
                shared_state=False,
                cloud_broker=cloud_broker,
            )
            mortal = Mortal(fog, Path(folder) / "home")
            try:
                for body in fog.site_bodies():
                    mortal.api.call("POST", "/sites", body)
                fog.start_agents(mortal.api.url)
                await_agents(mortal.api)
                yield mortal
            finally:
                mortal.close()
        finally:
            fog.down()


def insist(call: Callable[[], requests.Response], until: float) -> requests.Response:
    """Repeat a call while the service does not answer, or answers that it cannot serve it now (409,
    5xx); its answer, or the last one at `until` (of time.monotonic)."""
    while True:
        try:
            answer = call()
            if (answer.status_code != 409 and answer.status_code < 500) or (
                time.monotonic() > until
            ):
                return answer
        except requests.RequestException:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)
