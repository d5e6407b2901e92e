"""How a route is declared: once, for Flask and for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast
from urllib.parse import urlencode

from flask import Response, jsonify, request
from flask_smorest import Blueprint
from marshmallow import Schema

from speck.api.requests import Param, ParamParser, Query, schema_of
from speck.model.values import JsonObject
from speck.service.answer import Answer

View = Callable[..., Response]
YAML_OR_JSON = ("application/yaml", "application/json")
JSON = "application/json"

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
    ) -> Callable[[View], View]:
        """Declare the view below as `method` of `rule`.

        The view gets the parsed `query` and `headers` as its keywords when they are declared.
        `answers` gives the shape of each status.
        """
        docs: dict[str, Any] = {
            "responses": {
                str(s): _answer_doc(s, shape, answer_type) for s, shape in answers.items()
            },
        }
        if body is not None:
            content = {media: {"schema": body} for media in body_types}
            docs["requestBody"] = {"required": body_required, "content": content}

        def declare(view: View) -> View:
            call = view
            if headers:
                call = self._arguments(headers, "headers", arg_name="headers")(call)
            # where none is declared, too: one that is sent all the same is refused
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


def _answer_doc(status: int, shape: Body | None, media: str) -> dict[str, Any]:
    doc: dict[str, Any] = {"description": _MEANINGS[status]}
    if shape is not None:
        doc["content"] = {media: {"schema": shape}}
    return doc


_MEANINGS = {
    200: "done",
    201: "made",
    202: "under way; Location tells where to look",
    204: "gone",
    503: "not now",
    507: "no room on the service's disk",
}


def answer(found: Answer) -> Response:
    """A use case's answer as a response."""
    response = gone() if found.status == 204 else jsonify(found.body)
    response.status_code = found.status
    if found.location is not None:
        response.headers["Location"] = found.location
    return response


def gone() -> Response:
    """204, without a body."""
    response = Response(status=204)
    del response.headers["Content-Type"]
    return response


def listing(
    noun: str,
    items: Iterable[JsonObject],
    key: str,
    query: Query,
    *,
    newest_first: bool = False,
) -> Response:
    """A page of items sorted by `key`: those behind `after`, at most `limit`."""
    after = query["after"]
    behind = (
        item
        for item in items
        if after is None or (str(item[key]) < after if newest_first else str(item[key]) > after)
    )
    return page(noun, behind, key, query["limit"])


def page(noun: str, items: Iterable[JsonObject], key: str, limit: int | None) -> Response:
    """`{noun: [...]}` of at most `limit` items; when more follow, the header Link leads on."""
    left = iter(items)
    shown = list(islice(left, limit))
    response = jsonify({noun: shown})
    if limit is not None and next(left, None) is not None:
        follow = {**request.args.to_dict(), "limit": limit, "after": shown[-1][key]}
        response.headers["Link"] = f'<{request.path}?{urlencode(follow)}>; rel="next"'
    return response
