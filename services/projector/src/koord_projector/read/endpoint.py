"""Definition of an endpoint for the router and for `/openapi.json`, which is OpenAPI 3.1."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from starlette.requests import Request
from starlette.responses import Response

from koord_projector.read.answers import ErrorAnswer

LONGEST_TEXT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the query or the path of a URL.

    Attributes:
        about: One sentence for the OpenAPI document.
        where: "query" or "path".
        choices: Accepted values; empty: any text.
        minimum: Smallest integer. If minimum and maximum are given, the parameter is an integer.
        maximum: Largest integer.
        default: Value of an absent integer; None: none.
    """

    name: str
    about: str
    where: str = "query"
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    default: int | None = None

    @property
    def schema(self) -> dict[str, object]:
        """JSON Schema of the parameter's value."""
        if self.maximum is not None:
            found: dict[str, object] = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
            return found if self.default is None else {**found, "default": self.default}
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "maxLength": LONGEST_TEXT, "minLength": 1 if self.where == "path" else 0}


Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Definition of one endpoint of the read API.

    Attributes:
        path: Path with its parameters in braces.
        about: One sentence for the OpenAPI document.
        answer: Type of the body with status 200 (202 for POST); None: a stream of `text/event-stream`.
        missing: Meaning of status 404; "": it is never returned.
    """

    path: str
    handler: Handler
    about: str
    answer: type[msgspec.Struct] | None
    parameters: tuple[Parameter, ...] = ()
    method: str = "GET"
    missing: str = ""


def text_of(source: Mapping[str, str], name: str, choices: tuple[str, ...] = ()) -> str:
    """Return the text of a parameter; "" if it is absent.

    Args:
        source: Name -> text of the parameters of a request.
        name: Name of the parameter.
        choices: Accepted values; empty: any text.

    Raises:
        InvalidInput: The text is longer than 512 characters, is not UTF-8, contains NUL, or is not one of the choices.
    """
    value = source.get(name, "")
    if len(value) > LONGEST_TEXT or "\0" in value or not _is_utf8(value):
        raise InvalidInput(f"UTF-8 text of at most {LONGEST_TEXT} characters without NUL", value, name)
    if choices and name in source and value not in choices:
        raise InvalidInput(f"one of {', '.join(choices)}", value, name)
    return value


def number_of(source: Mapping[str, str], parameter: Parameter) -> int | None:
    """Return the value of an integer parameter; its default if it is absent.

    Args:
        source: Name -> text of the parameters of a request.
        parameter: Definition of the parameter.

    Raises:
        InvalidInput: The text is not an integer within the bounds.
    """
    assert parameter.minimum is not None
    assert parameter.maximum is not None
    text = source.get(parameter.name)
    if text is None:
        return parameter.default
    if text.isascii() and text.isdigit() and len(text) < 20:
        value = int(text)
        if parameter.minimum <= value <= parameter.maximum:
            return value
    raise InvalidInput(f"an integer from {parameter.minimum} to {parameter.maximum}", text, parameter.name)


def json_answer(value: object, status: int = 200) -> Response:
    """Return an HTTP answer with this value as JSON, which must not be cached."""
    return Response(codec.encode(value), status, {"cache-control": "no-store"}, "application/json")


def refusal(status: int, sentence: str) -> Response:
    """Return an HTTP answer with this status and an `ErrorAnswer` as JSON, whose `error` is `sentence`."""
    return json_answer(ErrorAnswer(sentence), status)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
