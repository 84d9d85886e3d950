"""Create `/openapi.json`: OpenAPI 3.1 from the endpoints' definitions and the types of the answers."""

from collections.abc import Sequence
from typing import Any

import msgspec

from koord_projector.shell.queries.answers import ErrorAnswer
from koord_projector.shell.web.endpoints import Endpoint

_REF = "#/components/schemas/{name}"
VERSION = "1"


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these endpoints as JSON value."""
    types: list[type[msgspec.Struct]] = [each.answer for each in endpoints if each.answer is not None]
    _, components = msgspec.json.schema_components([*types, ErrorAnswer], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Koordstream projector",
            "version": VERSION,
            "description": "The cluster as the log tells it: now, at any past moment, and why it is so.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    good = "202" if endpoint.method == "POST" else "200"
    responses: dict[str, Any] = {
        good: {"description": endpoint.about, "content": _content(endpoint)},
        "503": _error("Postgres is away, the service is stopping, or the answer took too long."),
    }
    if endpoint.parameters:
        responses["400"] = _error("A parameter was refused: field, rule and value.")
    if endpoint.missing:
        responses["404"] = _error(endpoint.missing)
    operation: dict[str, Any] = {
        "operationId": getattr(endpoint.handler, "__name__", "operation"),
        "summary": endpoint.about,
        "parameters": [
            {
                "name": each.name,
                "in": each.where,
                "description": each.about,
                "required": each.where == "path",
                "schema": each.schema,
            }
            for each in endpoint.parameters
        ],
        "responses": responses,
    }
    if endpoint.method == "POST":
        responses["415"] = _error("The content type is not application/json.")
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object", "maxProperties": 0}}},
        }
    return operation


def _content(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is None:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": _REF.format(name=endpoint.answer.__name__)}}}


def _error(about: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name=ErrorAnswer.__name__)}
    return {"description": about, "content": {"application/json": {"schema": schema}}}
