"""What each of two engines at a site can do."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from binders.memory import World
from speck.binding import AgentChannel, ArtifactKind, EngineCapability
from speck.deploy.capabilities import find_lacking, name_engine
from speck.model.engines import EngineAt
from speck.sites.connections import Connections
from speck.spec.site_schema import site_from_data
from tests.memory_fog import site_body
from tests.third_party_kinds import third_party

JAR = EngineAt("edge-a", ArtifactKind.JAR)
TEXT = EngineAt("edge-a", ArtifactKind.TEXT)


def test_each_engine_is_asked_for_what_it_takes(tmp_path: Path) -> None:
    World.reset()
    body = site_body("edge-a")
    address = body["spe"]["address"]
    World.current().engine(address).capabilities = frozenset({EngineCapability.TRIAL})
    with third_party():
        site = site_from_data({**body, "spe": {**body["spe"], "beside": {"kind": "loom"}}})
        channel = cast(AgentChannel, object())
        opened = Connections(lambda: {"edge-a": site}, tmp_path, channel=lambda _: channel)
        lacking = {
            each: find_lacking(opened, each, [JAR, TEXT])
            for each in (EngineCapability.STATE, EngineCapability.TRIAL, EngineCapability.RESEND)
        }
        assert lacking == {
            EngineCapability.STATE: {JAR},
            EngineCapability.TRIAL: {TEXT},
            EngineCapability.RESEND: {JAR, TEXT},
        }
        assert name_engine(opened, TEXT) == "the engine of site edge-a that takes kind text"
        assert opened.engine_of(TEXT).capabilities == {EngineCapability.STATE}
