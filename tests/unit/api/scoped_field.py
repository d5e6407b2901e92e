"""Two users' compositions in one service, and the scopes of one of them."""

from __future__ import annotations

import hashlib
from typing import Any

from speck.model.analysis import AnalysisHead, AnalysisState
from speck.model.scopes import Scopes
from speck.spec.schema import composition_from_data
from tests.analyses import predict
from tests.memory_fog import jar_bytes
from tests.unit.api.bench import Bench, composition, job

BETA = Scopes(compositions=("beta*",), topics=("beta/#", "speck-calibration/#"), sites=("edge-a",))

KINDS = {
    "compositions": Scopes(compositions=BETA.compositions),
    "topics": Scopes(topics=BETA.topics),
    "sites": Scopes(sites=BETA.sites),
    "all": BETA,
}

SECRET = "alpha-key"
JAR = jar_bytes(b"alpha")
SHA256 = hashlib.sha256(JAR).hexdigest()


def alpha(**more: Any) -> dict[str, Any]:
    """A's composition: at edge-b, on topics below alpha/, with a reader outside."""
    first = limited_job("alpha-1", "edge-b", "alpha/in", "alpha/inner", args=["--key", SECRET])
    last = limited_job("alpha-2", "edge-b", "alpha/inner", "alpha/out")
    outputs = [{"site": "edge-b", "topic": "alpha/out", "client_id": "alpha-reader"}]
    return {**composition(first, last, name="alpha"), "outputs": outputs, **more}


def beta(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """B's composition: at edge-a, on topics below beta/."""
    own = jobs or (limited_job("beta-1", "edge-a", "beta/in", "beta/out"),)
    return {**composition(*own, name="beta"), **more}


def limited_job(name: str, site: str, source: str, sink: str, **more: Any) -> dict[str, Any]:
    return job(name, site=site, source_topic=source, sink_topic=sink, **more)


ALONE = limited_job("alpha-alone", "edge-b", "alpha/alone", "alpha/alone-out")
OWN_ALONE = limited_job("beta-alone", "edge-a", "beta/alone", "beta/alone-out")


class Field:
    """The application with things of A and of B, and tokens for B."""

    def __init__(self, bench: Bench):
        self.bench = bench
        bench.add_sites()
        assert bench.client.put(f"/artifacts/{SHA256}", data=JAR).status_code == 201
        for body in (alpha(), beta()):
            answer = bench.client.post("/compositions?wait=30", json=body)
            assert answer.json["state"] == "done", answer.text
        for body in (ALONE, OWN_ALONE):
            assert bench.client.post("/jobs", json=body).status_code == 201
        tokens = bench.service.tokens
        self.admin = tokens.add("root", "admin")
        self.secrets = {
            (kind, role): tokens.add(f"{kind}-{role}", role, scopes=scopes)
            for kind, scopes in KINDS.items()
            for role in ("deployer", "viewer")
        }
        self._store_results()

    def _store_results(self) -> None:
        """An analysis and a placement of each composition."""
        records = self.bench.service.records
        for name, body in (("alpha", alpha()), ("beta", beta())):
            analysis = AnalysisHead(
                id=f"an-{name}",
                state=AnalysisState.DONE,
                composition=name,
                started="2026-01-01T00:00:00Z",
                ended=None,
                error=None,
                master="local[*]",
            )
            placement = predict(composition_from_data(body), id=f"pl-{name}", yaml=SECRET)
            records.write(records.analyses.put(analysis), records.placements.add(placement))

    def ask(self, method: str, path: str, kind: str, role: str = "deployer", **more: Any) -> Any:
        """The answer to a token of B that is limited in this way."""
        return self.send(method, path, self.secrets[kind, role], **more)

    def send(self, method: str, path: str, secret: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {secret}", **more.pop("headers", {})}
        return self.bench.client.open(path, method=method, headers=headers, **more)

    def names(self, whose: str) -> dict[str, str]:
        """What the path of a route may name, of A (alpha) or B (beta)."""
        (change, *_) = self.bench.service.changes.all(composition=whose)
        names = {"name": whose, "job_name": f"{whose}-alone", "change_id": change.id}
        names |= {"analysis_id": f"an-{whose}", "placement_id": f"pl-{whose}", "sha256": SHA256}
        return names | {"command_id": "c", "transfer_id": "t"}

    def path(self, rule: str, whose: str) -> str:
        names = self.names(whose)
        if rule.startswith("/sites"):
            names["name"] = "edge-b" if whose == "alpha" else "edge-a"
        return rule.replace("<", "{").replace(">", "}").format(**names)
