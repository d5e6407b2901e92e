"""Declaring routes: one declaration serves Flask and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast
from urllib.parse import urlencode

from flask import Response, jsonify, request
from flask_smorest import Blueprint
from marshmallow import Schema

from speck.api.requests import Param, ParamParser, Query, schema_of
from speck.model.accepted import Accepted
from speck.model.shown import render

View = Callable[..., Response]
YAML_OR_JSON = ("application/yaml", "application/json")
JSON = "application/json"

DECLARED: set[str] = set()
"""The names of all query parameters of all routes."""

Body = type[Schema] | dict[str, Any]
Answers = Mapping[int, Body | None]


class _Blueprint(Blueprint):  # type: ignore[misc]
    ARGUMENTS_PARSER = ParamParser()


class Routes:
    """The routes of one noun."""

    def __init__(self, noun: str, description: str, **options: Any):
        self.blueprint = _Blueprint(noun, __name__, description=description, **options)

    def get(self, rule: str, **about: Any) -> Callable[[View], View]:
        """See `_route`."""
        return self._route("GET", rule, **about)

    def post(self, rule: str, **about: Any) -> Callable[[View], View]:
        """See `_route`."""
        return self._route("POST", rule, **about)

    def put(self, rule: str, **about: Any) -> Callable[[View], View]:
        """See `_route`."""
        return self._route("PUT", rule, **about)

    def delete(self, rule: str, **about: Any) -> Callable[[View], View]:
        """See `_route`."""
        return self._route("DELETE", rule, **about)

    def _route(
        self,
        method: str,
        rule: str,
        *,
        answers: Answers,
        query: Sequence[Param] = (),
        headers: Sequence[Param] = (),
        body: Body | None = None,
        body_types: Sequence[str] = YAML_OR_JSON,
        body_required: bool = True,
        answer_type: str = JSON,
        other_types: Sequence[str] = (),
    ) -> Callable[[View], View]:
        """Declare the decorated view as `method` of `rule`.

        The view receives the parsed `query` and `headers` as keyword arguments if they are
        declared. `answers` maps each status to the shape of its body, which has the media type
        `answer_type`; `other_types` are those of texts that the view can return instead.
        """
        docs: dict[str, Any] = {
            "responses": {
                str(s): _answer_doc(s, shape, answer_type, other_types)
                for s, shape in answers.items()
            },
        }
        if body is not None:
            content = {media: {"schema": body} for media in body_types}
            docs["requestBody"] = {"required": body_required, "content": content}

        DECLARED.update(name for name, _ in query)

        def declare(view: View) -> View:
            call = view
            if headers:
                call = self._arguments(headers, "headers", arg_name="headers")(call)
            # also for routes without parameters, so that any parameter is refused
            how = {"arg_name": "query"} if query else {"as_kwargs": True}
            call = self._arguments(query, "query", **how)(call)
            documented = self.blueprint.doc(**docs)(call)
            self.blueprint.add_url_rule(rule, view.__name__, documented, methods=[method])
            return view

        return declare

    def _arguments(
        self, params: Sequence[Param], location: str, **how: Any
    ) -> Callable[[View], View]:
        return cast(
            Callable[[View], View],
            self.blueprint.arguments(
                schema_of(params), location=location, error_status_code=400, **how
            ),
        )


def _answer_doc(
    status: int, shape: Body | None, media: str, other_types: Sequence[str]
) -> dict[str, Any]:
    doc: dict[str, Any] = {"description": _MEANINGS[status]}
    if shape is not None:
        texts = {other: {"schema": {"type": "string"}} for other in other_types}
        doc["content"] = {media: {"schema": shape}, **texts}
    return doc


_MEANINGS = {
    200: "done",
    201: "created",
    202: "in progress; poll the Location",
    204: "deleted, or nothing to return",
    302: "continue at the Location",
    503: "temporarily unavailable",
    507: "the service's disk is full",
}


def answer(body: object, status: int = 200, location: str | None = None) -> Response:
    """Render what a use case returns as a response."""
    response = jsonify(render(body))
    response.status_code = status
    if location is not None:
        response.headers["Location"] = location
    return response


def answer_accepted(accepted: Accepted) -> Response:
    """202 while a change is under way; 200 for its outcome, and for a plan only."""
    location = f"/changes/{accepted.change}" if accepted.change is not None else None
    return answer(accepted, 202 if accepted.under_way else 200, location)


def no_content() -> Response:
    """204 without a body."""
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response


def listing(
    noun: str,
    items: Iterable[object],
    key: str,
    query: Query,
    *,
    newest_first: bool = False,
) -> Response:
    """A page of items sorted by `key`: those after `after`, at most `limit`."""
    after = query["after"]
    behind = (
        item
        for item in items
        if after is None or (_key(item, key) < after if newest_first else _key(item, key) > after)
    )
    return page(noun, behind, key, query["limit"])


def page(noun: str, items: Iterable[object], key: str, limit: int | None) -> Response:
    """`{noun: [...]}` with at most `limit` items; the header Link names the next page, if any."""
    remaining = iter(items)
    selection = list(islice(remaining, limit))
    response = jsonify({noun: render(selection)})
    if limit is not None and next(remaining, None) is not None:
        follow = {**request.args.to_dict(), "limit": limit, "after": _key(selection[-1], key)}
        response.headers["Link"] = f'<{request.path}?{urlencode(follow)}>; rel="next"'
    return response


def _key(item: object, key: str) -> str:
    return str(item[key] if isinstance(item, dict) else getattr(item, key))
