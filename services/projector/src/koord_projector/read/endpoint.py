"""What an endpoint of the read API is: its query, its answer, and the function between them; and `/openapi.json`.

The fields of a query are the parameters of the endpoint. Their names, defaults, bounds and texts stand only there:
`read_query` checks a request by them, and `openapi_document` describes them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from koordcore.ports.clock import Clock
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from msgspec import Meta
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.responses import Response

from koord_projector.context import Progress
from koord_projector.read.moments import Moment

LONGEST_TEXT: Final = 512
VERSION: Final = "1"
_REF: Final = "#/components/schemas/{name}"


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a request: texts and integers. Those without a default are parts of the path."""


def about(text: str) -> Meta:
    """One sentence about a parameter for the OpenAPI document."""
    return Meta(description=text)


def one_of(*choices: str) -> Meta:
    """The accepted values of a text, which may be absent."""
    return Meta(extra_json_schema={"enum": list(choices)})


Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Position = Annotated[int, Meta(ge=0, le=2**62)]
Second = Annotated[int, Meta(ge=0, le=253_402_300_799)]
"""Unix second."""
At = Annotated[
    Text,
    about("A position of the log, or an RFC 3339 time with its zone: what the log had stored by then. Absent: now."),
]
"""A field of this type is called `at`. The moment that it names is `Reading.moment`."""
Before = Annotated[Position, about("Only facts before this position.")]
After = Annotated[Position, about("Only facts after this position.")]

Q = TypeVar("Q", bound=Query)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One read transaction, in which one request is answered."""

    connection: AsyncConnection
    moment: Moment  # what the parameter `at` names; `moments.PRESENT` for an endpoint without it
    clock: Clock  # of the run
    now: datetime  # on this clock
    progress: Progress
    cluster: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Q]):
    """One endpoint of the read API."""

    path: str  # with parameters in braces
    name: str  # of the operation, in OpenAPI and metrics
    about: str  # one sentence for the OpenAPI document
    query: type[Q]
    answer: type[msgspec.Struct] | None  # body of status 200 (202 for POST); None: a stream of `text/event-stream`
    read: Callable[[Reading, Q], Awaitable[msgspec.Struct | None]] | None = None  # None: does more than read (`api`)
    missing: str = ""  # why `read` returns None, which is status 404; "": it never does
    method: str = "GET"


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The reason why a request was refused. `field`, `rule` and `value` are "" unless a parameter is invalid."""

    error: str
    field: str = ""
    rule: str = ""
    value: str = ""


@cache
def parameters_of(query: type[Query]) -> dict[str, dict[str, Any]]:
    """Name -> JSON Schema of the parameters, in the order of the fields, with `description` and `default`."""
    properties: dict[str, Any] = msgspec.json.schema(query)["$defs"][query.__name__].get("properties", {})
    return {name: {**each, **each.pop("anyOf", [{}])[0]} for name, each in properties.items()}


def read_query(query: type[Q], given: Mapping[str, str]) -> Q:
    """The parameters of a request, from their names and texts. Unknown ones are ignored.

    `msgspec.convert` would do most of it. But it takes 1e3 and 7.0 for integers, and its errors do not tell the rule.

    Raises:
        InvalidInput: A text is not UTF-8, too long, contains NUL, or is not one of the choices; or an integer is not
            within its bounds.
    """
    rules = parameters_of(query).items()
    return query(**{name: _value(name, given[name], rule) for name, rule in rules if name in given})


def _value(name: str, text: str, rule: Mapping[str, Any]) -> str | int:
    if rule["type"] == "integer":
        low, high = rule["minimum"], rule["maximum"]
        if text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high:
            return int(text)
        raise InvalidInput(f"an integer from {low} to {high}", text, name)
    if len(text) > LONGEST_TEXT or "\0" in text or not _is_utf8(text):
        raise InvalidInput(f"UTF-8 text of at most {LONGEST_TEXT} characters without NUL", text, name)
    if "enum" in rule and text not in rule["enum"]:
        raise InvalidInput(f"one of {', '.join(rule['enum'])}", text, name)
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_answer(value: object, status: int = 200) -> Response:
    """It must not be cached."""
    return Response(codec.encode(value), status, {"cache-control": "no-store"}, "application/json")


def refusal(status: int, sentence: str) -> Response:
    return json_answer(ErrorAnswer(sentence), status)


def openapi_document(endpoints: Sequence[Endpoint[Any]]) -> dict[str, Any]:
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


def _operation(endpoint: Endpoint[Any]) -> dict[str, Any]:
    good = "202" if endpoint.method == "POST" else "200"
    parameters = [_parameter(endpoint.path, *each) for each in parameters_of(endpoint.query).items()]
    responses: dict[str, Any] = {
        good: {"description": endpoint.about, "content": _content(endpoint)},
        "503": _error("Postgres is away, the service is stopping, or the answer took too long."),
    }
    if parameters:
        responses["400"] = _error("A parameter was refused: field, rule and value.")
        too_long = {"text/plain": {"schema": {"type": "string"}}}
        responses["414"] = {"description": "The URL is longer than every server here allows.", "content": too_long}
    if endpoint.missing:
        responses["404"] = _error(f"{endpoint.missing[0].upper()}{endpoint.missing[1:]}.")
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "parameters": parameters,
        "responses": responses,
    }
    if endpoint.method == "POST":
        responses["415"] = _error("The content type is not application/json.")
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object", "maxProperties": 0}}},
        }
    return operation


def _parameter(path: str, name: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    in_path = f"{{{name}}}" in path
    if rule["type"] == "integer":
        has_default = rule.get("default") is not None
        schema = {key: rule[key] for key in ("type", "minimum", "maximum", *["default"] * has_default)}
    elif "enum" in rule:
        schema = {"type": "string", "enum": rule["enum"]}
    else:
        schema = {"type": "string", "maxLength": rule["maxLength"], "minLength": int(in_path)}
    return {
        "name": name,
        "in": "path" if in_path else "query",
        "description": rule["description"],
        "required": in_path,
        "schema": schema,
    }


def _content(endpoint: Endpoint[Any]) -> dict[str, Any]:
    if endpoint.answer is None:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": _REF.format(name=endpoint.answer.__name__)}}}


def _error(why: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name=ErrorAnswer.__name__)}
    return {"description": why, "content": {"application/json": {"schema": schema}}}
