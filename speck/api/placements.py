"""/placements: the proposals of placement policies"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.access import caller, name_object, reach
from speck.api.context import acting, is_over, occupying, service
from speck.api.hidden import show_placement
from speck.api.requests import Query, flag, idempotency_key, load_body, paging, text, wait
from speck.api.routes import Routes, answer, answer_accepted, listing
from speck.placement.autopilot import Settings
from speck.service.compositions import ApplyRequest

routes = Routes("placements", "Which job should run where, based on measurements")

_REQUEST = shapes.PlacementRequestShape()
_SETTINGS = shapes.AutopilotSettingsShape()


@routes.get(
    "/placements",
    query=[text("composition", "only those of this composition"), *paging("id", 1000)],
    answers={200: shapes.PLACEMENTS},
)
def list_placements(query: Query) -> Response:
    """Placements without their details, newest first."""
    has_placement = reach().has_placement_of
    heads = service().placements.all(query["composition"])
    placements = (head for head in heads if has_placement(head.composition))
    return listing("placements", placements, "id", query, newest_first=True)


@routes.post(
    "/placements",
    body=shapes.PlacementRequestShape,
    answers={201: shapes.PlacementShape},
)
def place() -> Response:
    """Compute with a policy where the composition's jobs should run; this changes nothing."""
    parameters = load_body(_REQUEST)
    name_object(f"/placements?composition={parameters['composition']}")
    reach().require_composition(parameters["composition"])
    reach().require_all_sites("compute a placement")
    if parameters.get("analysis") is not None:
        reach().require_analysis(parameters["analysis"])
    with occupying(f"place {parameters['composition']}"):
        placement = service().placements.make(
            parameters["composition"],
            parameters["policy"],
            parameters.get("analysis"),
            parameters.get("limits"),
            scale=parameters["scale"],
            all_moves=parameters["all_moves"],
            move_unmeasured=parameters["move_unmeasured"],
        )
    return answer(show_placement(placement), 201, f"/placements/{placement.id}")


@routes.get("/placements/<placement_id>", answers={200: shapes.PlacementShape})
def get_placement(placement_id: str) -> Response:
    """A placement with its reasons and its YAML."""
    return answer(show_placement(service().placements.get(placement_id)))


@routes.post(
    "/placements/<placement_id>/apply",
    query=[
        wait(),
        flag("dry_run", "return the plan and change nothing"),
    ],
    headers=[idempotency_key("a repeated request with the same key gets the first response")],
    answers={202: shapes.AcceptedShape, 200: shapes.AcceptedShape},
)
def apply_placement(placement_id: str, query: Query, headers: Query) -> Response:
    """Make it the composition's desired state; 412 when that has changed meanwhile."""
    if reach().limited:
        reach().refuse_composition(service().placements.get(placement_id).description)
    wait_s = 0 if query["dry_run"] else query["wait"]
    with acting(f"apply placement {placement_id}", wait_s) as seconds:
        options = ApplyRequest(
            wait_s=seconds,
            gives_up=is_over,
            dry_run=query["dry_run"],
            idempotency_key=headers["Idempotency-Key"],
            by=caller().actor,
            sees=reach().has_composition,
        )
        return answer_accepted(service().placements.apply(placement_id, options))


@routes.get("/compositions/<name>/autopilot", answers={200: shapes.AutopilotShape})
def get_autopilot(name: str) -> Response:
    """Whether the composition's placements are applied automatically, and why or why not."""
    return answer(reach().show_autopilot(service().autopilots.get(name)))


@routes.put(
    "/compositions/<name>/autopilot",
    body=shapes.AutopilotSettingsShape,
    answers={200: shapes.AutopilotShape},
)
def put_autopilot(name: str) -> Response:
    """Switch the autopilot on or off; absent settings have their defaults."""
    settings = Settings(**load_body(_SETTINGS))
    allowed = reach()
    if settings.on:
        allowed.require_all_sites("switch the autopilot on")
    autopilot = service().autopilots.put(name, settings, caller().actor)
    return answer(allowed.show_autopilot(autopilot))
