"""The OpenAPI document, made from the table of routes and the types they name."""

from collections.abc import Iterable
from typing import Any

import msgspec

from fairnotice import __version__
from fairnotice.control import problems
from fairnotice.control.keys import KEY_CHARACTERS_MAX
from fairnotice.control.route import After, Memory, Route
from fairnotice.control.shapes import Line, Problem
from fairnotice.words import TokenRole

REFERENCE = "#/components/schemas/{name}"
# What may be said to anybody, and to whoever sends a body.
ALWAYS = (401, 403, 404, 422, 500, 503)
WITH_BODY = (400, 409, 413, 429)
SECURITY_SCHEMES = {"token": {"type": "http", "scheme": "bearer"}}
MEANINGS = {
    200: "What there is.",
    202: "Accepted, and durable.",
    400: "The body is not JSON.",
    401: "Without a token that counts.",
    403: "Not from here, or not by you.",
    404: "Nobody has this name.",
    405: "The address does not take this method; `Allow` says which it takes.",
    409: "The law says no; the detail says why and what to do.",
    413: "Too large.",
    422: "It does not fit; `field` says where.",
    429: "Too much at once.",
    500: "A fault of fairnotice itself.",
    503: "It cannot be recorded now; nothing has changed.",
}


def openapi(routes: Iterable[Route]) -> bytes:
    """The document, in JSON."""
    routes = tuple(routes)
    schemas, components = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    paths["/v1/feed"] = {"get": _feed(schemas)}
    paths["/v1/endpoints/{name}/feed"] = {"get": _node_feed(schemas)}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "fairnotice",
            "version": __version__,
            "summary": "Notice before impact, for every virtual machine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": SECURITY_SCHEMES},
        # Either: where nobody is asked who he is, no token is needed.
        "security": [{"token": []}, {}],
    }
    return msgspec.json.encode(document)


Schemas = dict[Any, dict[str, Any]]


def _schemas(routes: tuple[Route, ...]) -> tuple[Schemas, dict[str, Any]]:
    """The schema of each type that a route names, and what they refer to."""
    shown = [shape for route in routes for shape in (route.shows, route.foresees)]
    taken = [route.takes for route in routes if route.takes is not None]
    asked = [route.asks for route in routes]
    types = list(
        dict.fromkeys(t for t in (*shown, *taken, *asked, Problem, Line) if t not in (bytes, None))
    )
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    return dict(zip(types, schemas, strict=True)), components


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
        "x-fairnotice-role": route.needs,
    }
    if route.takes is not None:
        operation["requestBody"] = {
            "content": {"application/json": {"schema": schemas[route.takes]}},
            "required": bool(
                msgspec.json.schema(route.takes)["$defs"][route.takes.__name__].get("required")
            ),
        }
    return operation


def _operation_id(route: Route) -> str:
    words = route.path.removeprefix("/v1/").replace("{name}", "one")
    return f"{route.method.lower()}-{words.replace('/', '-').replace(':', '-')}"


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{name}" in route.path:
        found.append(_parameter("name", "path", {"type": "string"}))
    found += _query(route.asks)
    if route.memory is not Memory.NOBODY:
        schema = {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX}
        found.append(_parameter("Idempotency-Key", "header", schema))
    return found


def _query(asks: type) -> list[dict[str, Any]]:
    """What may stand after the question mark."""
    whole = msgspec.json.schema(asks)
    described = whole["$defs"][asks.__name__]["properties"]
    return [_parameter(name, "query", _inline(one, whole)) for name, one in described.items()]


def _inline(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """A schema without references into a document that is not there."""
    if "$ref" in schema:
        return dict(whole["$defs"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return {**schema, "anyOf": [_inline(one, whole) for one in schema["anyOf"]]}
    return schema


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _responses(route: Route, schemas: Schemas) -> dict[str, Any]:
    kind = route.media_type
    answers = {str(route.status): _answer(route.status, route.shows, schemas, kind)}
    if route.foresees is not None:
        answers["200"] = _answer(200, route.foresees, schemas)
    statuses = (*ALWAYS, *(WITH_BODY if route.takes is not None else ()))
    answers |= {str(status): _problem(status, schemas) for status in sorted(statuses)}
    return answers


def _answer(
    status: int,
    shape: Any,  # noqa: ANN401, a type
    schemas: Schemas,
    kind: str = "application/json",
) -> dict[str, Any]:
    content = {kind: {"schema": schemas.get(shape, {})}}
    return {"description": MEANINGS[status], "content": content}


def _problem(status: int, schemas: Schemas) -> dict[str, Any]:
    content = {problems.CONTENT_TYPE: {"schema": schemas[Problem]}}
    return {"description": MEANINGS[status], "content": content}


def _feed(schemas: Schemas) -> dict[str, Any]:
    content = {"application/x-ndjson": {"schema": schemas[Line]}}
    return {
        "operationId": "get-feed",
        "summary": "Every commit after a revision, as it happens: one change per line.",
        "parameters": _query(After),
        "x-fairnotice-role": TokenRole.READER,
        "responses": {
            "200": {"description": "A stream that does not end.", "content": content},
            **{str(status): _problem(status, schemas) for status in (401, 403, 422, 503)},
        },
    }


def _node_feed(schemas: Schemas) -> dict[str, Any]:
    # Lines of several kinds, more to come: docs/reference/node-feed.md has them.
    content = {"application/x-ndjson": {"schema": {"type": "object"}}}
    return {
        "operationId": "get-endpoints-one-feed",
        "summary": "What the endpoint of this node shows, as it changes: one fact per line.",
        "parameters": [_parameter("name", "path", {"type": "string"}), *_query(After)],
        "x-fairnotice-role": TokenRole.ENDPOINT,
        "responses": {
            "200": {"description": "A stream that does not end.", "content": content},
            **{str(status): _problem(status, schemas) for status in (401, 403, 404, 422, 503)},
        },
    }
