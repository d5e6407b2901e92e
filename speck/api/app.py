"""The Flask application over an open service."""

from __future__ import annotations

import copy
import functools
import logging
import time
from importlib.metadata import version
from typing import Any

import orjson
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.common import resolve_schema_cls
from flask import Flask, Response, g, request
from flask.json.provider import JSONProvider
from flask_smorest import Api

from speck.api import (
    access,
    advice,
    agents,
    analyses,
    artifacts,
    auditing,
    changes,
    compositions,
    dataset,
    events,
    forgetting,
    jobs,
    links,
    placements,
    problems,
    rates,
    restored,
    sites,
    system,
    tokens,
)
from speck.api.context import EXTENSION, Context, context
from speck.api.masking import mask_url
from speck.api.metrics import Metrics
from speck.api.routes import DECLARED
from speck.api.shapes import ProblemShape
from speck.service import Service

ROUTES = (
    sites,
    agents,
    jobs,
    links,
    rates,
    compositions,
    changes,
    forgetting,
    analyses,
    placements,
    advice,
    dataset,
    artifacts,
    events,
    tokens,
    restored,
    system,
)

_access_log = logging.getLogger("speck.access")
_QUIET = ("/livez", "/readyz", "/metrics")


class _Json(JSONProvider):
    """Answers and bodies by orjson: a plan of a thousand jobs is half a megabyte."""

    def dumps(self, obj: Any, **_: Any) -> str:
        """The text of `obj`."""
        return orjson.dumps(obj).decode()

    def loads(self, s: str | bytes, **_: Any) -> Any:
        """What the text `s` holds."""
        return orjson.loads(s)

    def response(self, *args: Any, **kwargs: Any) -> Response:
        """The response that holds what `jsonify` was called with."""
        body = orjson.dumps(
            self._prepare_response_obj(args, kwargs), option=orjson.OPT_APPEND_NEWLINE
        )
        return Response(body, mimetype="application/json")


class _Api(Api):  # type: ignore[misc]
    """flask-smorest, with problems (RFC 9457) as error responses."""

    ERROR_SCHEMA = ProblemShape

    def _register_error_handlers(self) -> None:
        """Nothing: speck.api.problems registers the handlers."""


def create_app(service: Service) -> Flask:
    """Create the application; it neither opens nor closes `service`."""
    app = copy.copy(_declare_routes())
    app.extensions = {
        EXTENSION: Context(service, Metrics(service)),
        system.OPENAPI: _describe_routes,
    }
    return app


@functools.cache
def _declare_routes() -> Flask:
    """What all applications of this process have in common: to compile the rules of the routes
    takes longer than everything else about a new one."""
    app = _create_flask()
    for module in ROUTES:
        app.register_blueprint(module.routes.blueprint)
    app.before_request(_begin)
    app.before_request(access.guard)
    app.before_request(auditing.begin)
    app.after_request(_end)
    app.after_request(_refuse_unjudged)
    problems.register(app)
    return app


def _create_flask() -> Flask:
    app = Flask(__name__, static_folder=None)
    app.config.update(
        API_TITLE="speck",
        API_VERSION=version("speck"),
        OPENAPI_VERSION="3.1.0",
        PROVIDE_AUTOMATIC_OPTIONS=False,
    )
    app.json = _Json(app)
    app.url_map.merge_slashes = False
    return app


@functools.cache
def _describe_routes() -> dict[str, Any]:
    """The OpenAPI document of all routes: made when it is first asked for, since a start need not
    wait for it, and the same for every application of this process."""
    info = {
        "description": "Deploys and adapts stream applications whose jobs run on the engines of"
        " many sites."
    }
    marshmallow = MarshmallowPlugin(schema_name_resolver=_name_of)
    api = _Api(_create_flask(), spec_kwargs={"info": info, "marshmallow_plugin": marshmallow})
    for module in ROUTES:
        api.register_blueprint(module.routes.blueprint)
    return system.complete_openapi(api.spec.to_dict())


def _name_of(schema: Any) -> str:
    """`Job` for a response (JobShape), `JobDescription` for a request (JobSchema)."""
    name = str(resolve_schema_cls(schema).__name__)  # type: ignore[union-attr]
    return name.removesuffix("Shape").replace("Schema", "Description")


def _begin() -> None:
    g.began = time.perf_counter()
    problems.request_id()


def _end(response: Response) -> Response:
    response.headers[problems.REQUEST_ID] = problems.request_id()
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-cache")
    seconds = time.perf_counter() - g.began
    route = request.url_rule.rule if request.url_rule else "none"
    method = request.method if request.url_rule else "any"
    context().metrics.observe(method, route, response.status_code, seconds)
    quiet = response.status_code < 400 and _is_routine(method, route)
    auditing.record(response)
    caller = g.get("caller")
    _access_log.log(
        logging.DEBUG if quiet else logging.INFO,
        "%s %s %d %.0f ms %s %s",
        request.method,
        mask_url(request.path, request.query_string.decode("latin-1"), DECLARED),
        response.status_code,
        seconds * 1000,
        (caller.name if caller else None) or "-",
        problems.request_id(),
    )
    return response


def _is_routine(method: str, route: str) -> bool:
    """Whether nobody asked for it: what monitoring and the sites' agents send again and again."""
    permitted = access.ACCESS.get((method, route))
    if permitted is None:
        return False
    return route in _QUIET or permitted.quiet or (permitted.own_site and permitted.acts)


def _refuse_unjudged(response: Response) -> Response:
    try:
        access.refuse_unjudged(response.status_code)
    except AssertionError as error:
        return problems.of_fault(error)
    return response
