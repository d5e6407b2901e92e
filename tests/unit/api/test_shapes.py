"""What OpenAPI says of records follows from their types, and holds what the API answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from unittest.mock import ANY

import pytest

from speck.api.shapes import CompositionShape, JobShape, SiteShape
from speck.api.shapes.records import record_shape
from speck.model.composition import CompositionDescription
from speck.model.job_state import JobState
from speck.model.shown import Shown, shown_fields
from speck.model.site import Broker, Engine, Site
from tests.unit.api.bench import Bench


@pytest.fixture
def schemas(bench: Bench) -> Mapping[str, Any]:
    """The schemas of the OpenAPI document."""
    document: Any = bench.client.get("/openapi.json").json
    components: Mapping[str, Any] = document["components"]["schemas"]
    return components


@pytest.mark.parametrize("state", JobState)
def test_a_job_may_be_shown_in_each_state(state: JobState) -> None:
    faults = JobShape().validate({"state": str(state)})
    assert "state" not in faults


def test_the_state_of_a_job_is_documented_as_observed(schemas: Mapping[str, Any]) -> None:
    state = schemas["Job"]["properties"]["state"]
    assert state["enum"] == list(map(str, JobState))
    assert state["description"] == "the observed state"
    assert "state" in JobShape().validate({"state": "flying"})


RECORDS = {"Site": Site, "Engine": Engine, "Broker": Broker}


@pytest.mark.parametrize(("shape", "record"), RECORDS.items())
def test_a_site_is_documented_with_each_of_its_fields(
    schemas: Mapping[str, Any], shape: str, record: type
) -> None:
    assert set(shown_fields(record)) <= set(schemas[shape]["properties"])


def test_what_is_desired_of_a_composition_is_documented_with_each_field() -> None:
    desired: Any = CompositionShape().fields["desired"]
    assert set(shown_fields(CompositionDescription)) <= set(desired.schema.fields)
    assert set(SiteShape().fields) > set(shown_fields(Site))


def test_choices_and_the_values_of_mappings_are_documented(schemas: Mapping[str, Any]) -> None:
    assert schemas["LogEntry"]["properties"]["kind"]["enum"] == [
        "settings",
        "wait",
        "act",
        "outcome",
        "trouble",
    ]
    assert schemas["Forgotten"]["properties"]["kind"]["enum"] == ["job", "composition", "site"]
    names = schemas["Requirement"]["properties"]["name"]["enum"]
    assert names == ["max_latency_ms", "min_rate"]
    placement = schemas["Placement"]["properties"]
    assert placement["doubts"]["additionalProperties"] == {"type": "string"}
    free = placement["memory_available_bytes"]["additionalProperties"]
    assert set(free["type"]) == {"number", "null"}


def test_no_name_of_a_schema_is_private(schemas: Mapping[str, Any]) -> None:
    assert [name for name in schemas if name.startswith("_")] == []


@dataclass(frozen=True)
class Tree:
    leaf: Annotated[Literal["a", "b"], Shown("one of two")]
    branches: Mapping[str, int]
    parent: Annotated[Tree | None, Shown(left_out=True)] = None


def test_a_shape_knows_choices_values_and_itself() -> None:
    shape = record_shape(Tree, "TreeShape")()
    assert shape.validate({"leaf": "a", "branches": {"x": 1}}) == {}
    inner = {"leaf": "c", "branches": {"x": "y"}}
    faults = shape.validate({"leaf": "b", "branches": {}, "parent": inner})
    assert faults == {"parent": {"leaf": ANY, "branches": {"x": ANY}}}
