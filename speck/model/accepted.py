"""What has become of a request to change a composition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from speck.model.change import ChangeState
from speck.model.plan_outline import PlanOutline
from speck.model.shown import Shown


@dataclass(frozen=True, slots=True)
class Accepted:
    """An answer to a request to apply or remove a composition: the change that carries it out (None
    for a plan only), and its plan. `state` is how that change has ended; None while it is under
    way."""

    change: Annotated[str | None, Shown("null for a dry run")]
    composition: str
    revision: int | None
    plan: PlanOutline
    warnings: tuple[str, ...] = ()
    state: Annotated[ChangeState | None, Shown("after a wait", left_out=True)] = None

    @property
    def under_way(self) -> bool:
        """Whether its outcome is not known yet."""
        return self.change is not None and self.state is None

    @property
    def done(self) -> bool:
        """Whether all has been carried out."""
        return self.state is ChangeState.DONE
