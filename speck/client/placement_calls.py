"""Calls about analyses, placements and the autopilot."""

from __future__ import annotations

from collections.abc import Mapping

from speck.client.transport import Transport, path_part
from speck.model.values import JsonObject


class PlacementCalls(Transport):
    """The part of the client that asks where jobs should run."""

    # -- analyses -------------------------------------------------------------------------

    def analyse(self, composition: str | None = None, **options: object) -> JsonObject:
        """Begin an analysis (options: `window_s`, `since`, `until`, `master`, `ahead_s`) and return
        its head."""
        values = {"composition": composition, **options}
        body = {name: value for name, value in values.items() if value is not None}
        return self._json("POST", "/analyses", json=body)

    def analysis(self, analysis_id: str) -> JsonObject:
        """An analysis, with its results once it is done."""
        return self._json("GET", f"/analyses/{path_part(analysis_id)}")

    def cancel_analysis(self, analysis_id: str) -> JsonObject:
        """Cancel a running analysis."""
        return self._json("DELETE", f"/analyses/{path_part(analysis_id)}")

    # -- placements -----------------------------------------------------------------------

    def place(
        self,
        composition: str,
        policy: str,
        analysis: str | None = None,
        limits: Mapping[str, float] | None = None,
        *,
        scale: bool = False,
        all_moves: bool = False,
        move_unmeasured: bool = False,
    ) -> JsonObject:
        """Compute a new placement of the composition, without applying it. `analysis` defaults to
        the newest one; `scale`: choose each job's parallelism, too; `all_moves`: propose moves that
        do not pay for themselves, too; `move_unmeasured`: move jobs that were not measured, too
        (policy all-cloud)."""
        body: JsonObject = {"composition": composition, "policy": policy, "scale": scale}
        body |= {"all_moves": all_moves, "move_unmeasured": move_unmeasured}
        body |= {"analysis": analysis} if analysis else {}
        body |= {"limits": dict(limits)} if limits else {}
        return self._json("POST", "/placements", json=body)

    def advise(self, composition: str, **options: object) -> JsonObject:
        """Advice on a composition (`policy`, `analysis`, `window_s`, `limits`, `scale`)."""
        values = {"composition": composition, **options}
        body = {name: value for name, value in values.items() if value is not None}
        return self._json("POST", "/advice", json=body)

    def apply_placement(
        self, placement_id: str, *, dry_run: bool = False, key: str = ""
    ) -> JsonObject:
        """Make a placement the desired state; see `apply`."""
        return self._json(
            "POST",
            f"/placements/{path_part(placement_id)}/apply",
            query={"dry_run": dry_run},
            headers={} if dry_run else {"Idempotency-Key": key},
            again=not dry_run,
        )

    def autopilot(self, composition: str) -> JsonObject:
        """The autopilot's settings for the composition, and the log of its decisions."""
        return self._json("GET", f"/compositions/{path_part(composition)}/autopilot")

    def set_autopilot(self, composition: str, settings: JsonObject) -> JsonObject:
        """Switch the autopilot on or off: `{on, every_s, min_gain, policy, settle_s, agreeing,
        scale, ahead_s}`."""
        return self._json("PUT", f"/compositions/{path_part(composition)}/autopilot", json=settings)
