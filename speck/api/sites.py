"""/sites"""

from __future__ import annotations

from typing import Any

from flask import Response

from speck.api import shapes
from speck.api.access import caller, name_object, reach, refuse_foreign_site
from speck.api.context import looking, occupying, service
from speck.api.hidden import show_site
from speck.api.requests import (
    Query,
    document,
    flag,
    fresh,
    optional_object,
    paging,
    refuse_other_name,
    text,
)
from speck.api.routes import Routes, answer, listing, no_content
from speck.errors import InvalidError
from speck.model.site import Site
from speck.model.token import Role
from speck.spec.heartbeat import MAX_BYTES, HeartbeatSchema, heartbeat_from_data
from speck.spec.site_schema import SiteSchema, SitesSchema, site_from_data, sites_from_data

CALIBRATION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "busy": {"type": "boolean", "description": "calibrate even while jobs run at the site"},
        "job_path": {
            "type": "string",
            "description": "file of the calibration job, if not the usual one of its engine",
        },
    },
}

NEW_BROKER = flag(
    "new_broker",
    "accept a broker without the sessions of the site: they are made anew, and what waits at the"
    " old one is lost",
)

NEW_AGENT = flag(
    "new_agent",
    "accept the next agent that reports, though its state folder is not the one that the site had",
)

routes = Routes("sites", "Places with one engine and one broker")


@routes.get(
    "/sites",
    query=[
        text("site", "only the site of this name"),
        text("state", "only sites in this state", shapes.SITE_STATES),
        fresh(),
        *paging("name"),
    ],
    answers={200: shapes.SITES},
)
def list_sites(query: Query) -> Response:
    """All sites by name."""
    name = query["site"]
    has_site = reach().has_site
    if query["fresh"] and not query["after"]:  # once for all pages
        with looking("poll the sites"):
            names = service().records.sites.all()
            service().sites.refresh([n for n in names if name in (None, n) and has_site(n)])
    sites = service().sites.all(state=query["state"])
    matches = [site for site in sites if name in (None, site.name) and has_site(site.name)]
    return listing("sites", map(show_site, matches), "name", query)


@routes.post("/sites", body=SiteSchema, answers={201: shapes.SiteShape, 200: shapes.SiteShape})
def add_site() -> Response:
    """Register a site; 200 when the same site is registered already."""
    site = _site(None)
    by_itself, by = caller().role is Role.SITE, caller().actor
    with looking(f"register {site.name}"):  # names are resolved, as slowly as their servers answer
        view, created = service().sites.add(site, by_itself=by_itself, by=by)
    return answer(show_site(view), 201 if created else 200, f"/sites/{site.name}")


@routes.put("/sites", body=SitesSchema, query=[NEW_BROKER, NEW_AGENT], answers={200: shapes.SITES})
def put_sites(query: Query) -> Response:
    """Register or change several sites together; they may exchange their addresses."""
    body = document()
    sites = sites_from_data(body.data, body.line_of)
    names = ", ".join(site.name for site in sites)
    with looking(f"change {names}"):
        views = service().sites.put_all(
            sites,
            by=caller().actor,
            new_broker=query["new_broker"],
            new_agent=query["new_agent"],
        )
    return answer({"sites": list(map(show_site, views))})


@routes.get("/sites/<name>", query=[fresh()], answers={200: shapes.SiteShape})
def get_site(name: str, query: Query) -> Response:
    """A site, with its state as it was last polled."""
    if query["fresh"]:
        with looking(f"poll site {name}"):
            service().sites.refresh([name])
    return answer(show_site(service().sites.get(name)))


@routes.put(
    "/sites/<name>",
    body=SiteSchema,
    query=[NEW_BROKER, NEW_AGENT],
    answers={200: shapes.SiteShape, 201: shapes.SiteShape},
)
def put_site(name: str, query: Query) -> Response:
    """Register or change a site. Its addresses change while its jobs run; those that have them in
    their arguments are restarted with their state."""
    site = _site(name)
    by_itself, by = caller().role is Role.SITE, caller().actor
    with looking(f"register {name}"):
        view, created = service().sites.put(
            site,
            by_itself=by_itself,
            by=by,
            new_broker=query["new_broker"],
            new_agent=query["new_agent"],
        )
    return answer(show_site(view), 201 if created else 200, f"/sites/{name}")


@routes.delete("/sites/<name>", answers={204: None})
def delete_site(name: str) -> Response:
    """Remove a site that no job uses; 409 otherwise."""
    service().sites.delete(name, caller().actor)
    return no_content()


@routes.post(
    "/sites/<name>/heartbeat",
    body=HeartbeatSchema,
    body_required=False,
    answers={200: shapes.HeartbeatShape},
)
def record_heartbeat(name: str) -> Response:
    """Record that the site's agent is alive; the body, at most 16 kB, is its report."""
    report = heartbeat_from_data(optional_object("heartbeat", MAX_BYTES))
    by_itself = caller().role is Role.SITE
    last_seen = service().sites.heartbeat(name, report, by_itself=by_itself)
    return answer({"name": name, "last_seen": last_seen})


@routes.get("/sites/<name>/check", answers={200: shapes.SiteCheckShape})
def check_site(name: str) -> Response:
    """Settings of its engine and broker that would lose data or starve jobs."""
    with occupying(f"check {name}"):
        findings = service().sites.check(name)
    ok = all(finding.severity != "error" for finding in findings)
    return answer({"name": name, "ok": ok, "findings": findings})


@routes.post(
    "/sites/<name>/calibration",
    body=CALIBRATION,
    body_required=False,
    answers={200: shapes.CalibrationShape},
)
def calibrate_site(name: str) -> Response:
    """Measure the site's speed with a calibration job, which runs there for about 20 s."""
    options = optional_object("calibration")
    unknown = sorted(options.keys() - CALIBRATION["properties"].keys())
    busy, job_path = options.get("busy", False), options.get("job_path")
    if unknown or not isinstance(busy, bool) or not isinstance(job_path, str | None):
        raise InvalidError(
            f"cannot calibrate {name}: give busy (true or false) and job_path (text), or nothing"
        )
    calibrations, by = service().calibrations, caller().actor
    allowed = reach()
    with occupying(f"calibrate {name}"):
        calibration = calibrations.run(
            name,
            busy=busy,
            job_path=job_path,
            by=by,
            shows=allowed.has_job,
            shows_site=allowed.has_site,
        )
    return answer(calibration)


def _site(name: str | None) -> Site:
    body = document()
    data = body.data
    if name is not None and isinstance(data, dict):
        data = {"name": name, **data}
    site = site_from_data(data, body.line_of)
    if name is not None:
        refuse_other_name("name", name, site.name)
    name_object(f"/sites/{site.name}")
    refuse_foreign_site(site.name)
    return site
