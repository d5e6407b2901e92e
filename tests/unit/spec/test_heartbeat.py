"""What an agent reports, of this version and of others."""

from __future__ import annotations

from typing import Any

import pytest

from speck.errors import InvalidError
from speck.model.site import AgentReport
from speck.spec.heartbeat import heartbeat_from_data


@pytest.mark.parametrize("other", [{"slots": {"total": 2, "free": 1}}, {"gpus": 1}, {"": None}])
def test_fields_of_another_version_of_the_agent_do_no_harm(other: dict[str, Any]) -> None:
    assert heartbeat_from_data({"cores": 2, **other}) == AgentReport(cores=2)


@pytest.mark.parametrize("fault", [{"cores": "2"}, {"run": 7}, {"identity": "x"}])
def test_a_known_field_is_still_checked(fault: dict[str, Any]) -> None:
    (name,) = fault
    with pytest.raises(InvalidError, match=f"cannot read the heartbeat: {name}: "):
        heartbeat_from_data({**fault, "slots": {}})
