"""What an autopilot has to know beside the advice: which sites answer, and what changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from speck.deploy.changes import Running
from speck.model.change import ChangeState
from speck.model.values import AUTOPILOT
from speck.placement.autopilot import Advice, Facts
from speck.sites.site_polls import SitePolls
from speck.store.records import Records


class Surroundings:
    """Finds the facts; `under_way` returns all changes under way."""

    def __init__(
        self, records: Records, polls: SitePolls, under_way: Callable[[], Iterable[Running]]
    ):
        self._records = records
        self._polls = polls
        self._under_way = under_way

    def find_facts(self, composition: str, advice: Advice) -> Facts:
        sites = self._records.sites.all()
        polls = self._polls.engines.poll(sites)
        views = [polls[name].answer if name in polls else None for name in sites]
        silent = sum(view is None or bool(view.silent) for view in views)
        busy, changed_at = self.last_change(composition)
        busy = busy or self._other_move()
        return Facts(advice, len(sites), silent, busy, changed_at)

    def _other_move(self) -> str | None:
        """The autopilot's move of another composition that is under way, if any."""
        moves = [each.change for each in self._under_way() if each.change.by == AUTOPILOT]
        return next(
            (f"change {move.id} of {move.composition} is under way" for move in moves), None
        )

    def last_change(self, composition: str) -> tuple[str | None, float | None]:
        """Why a change cannot start now, and when the last one ended."""
        head = self._records.compositions.last_head(composition)
        if head is not None and head.removing:
            return "the composition is being removed", None
        change = self._records.changes.head(head.last_change) if head is not None else None
        if change is None:
            return None, None
        busy = None
        if change.state is not ChangeState.DONE:
            busy = f"change {change.id} is {change.state}"
        elif head is not None and head.deployed_revision != head.revision:
            busy = f"revision {head.revision} is not deployed"
        ended = datetime.fromisoformat(change.ended).timestamp() if change.ended else None
        return busy, ended
