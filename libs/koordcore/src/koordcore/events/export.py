"""`python -m koordcore.events.export DIR`: write the catalogue of events as JSON Schemas and AsyncAPI.

    DIR/events/<Type>.v<schema>.json    JSON Schema 2020-12 of each event's body
    DIR/asyncapi.yaml                   AsyncAPI 3: channels (subjects) of events, requests and work; messages, headers

The description of a field is the comment at it in the source: behind it, or in the lines above. A test fails if the
files differ from the models.

Source: event-bus spec, 2, 3.1, 6.
"""

import ast
import inspect
import io
import json
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from koordcore.events import CATALOGUE
from koordcore.events.registry import EventType
from koordcore.requests.catalogue import ENDPOINTS, WORK_QUEUES
from koordcore.requests.endpoint import ERROR, REQUEST_ID, TIMEOUT, ErrorCode, ErrorReply
from koordcore.requests.parked import Parked

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_CLUSTER = {"cluster": "id of the cluster"}
_HEADERS: dict[str, tuple[str, str]] = {
    "Nats-Msg-Id": (
        "string",
        "event id; UUIDv5 of causation id, aggregate and index; Koord-Event-Id if a node wrote it or it is no fact",
    ),
    "Koord-Type": ("string", "event type name"),
    "Koord-Schema": ("string", "version of the body's schema, from 1"),
    "Koord-Causation-Id": ("string", "id of the event or request that led here"),
    "Koord-Correlation-Id": ("string", "id of the user-visible thing"),
    "Koord-Actor": ("string", "service, instance and version"),
    "Koord-Epoch": ("string", "fencing number of the leadership term"),
    "Koord-Occurred-At": ("string", "RFC 3339, microseconds, UTC, the decider's clock"),
    "Koord-Based-On": ("string", "highest event sequence that the decider had folded"),
    "traceparent": ("string", "W3C trace context"),
    "tracestate": ("string", "W3C trace state"),
    "content-type": ("string", "application/json"),
}

_REQUEST_HEADERS: dict[str, tuple[str, str]] = {
    REQUEST_ID: ("string", "idempotency key: requests with the same key are carried out once"),
    TIMEOUT: ("string", "seconds that the caller waits"),
}
_REPLY_HEADERS: dict[str, tuple[str, str]] = {
    ERROR: ("string", f"only of an error reply; one of {', '.join(ErrorCode)}"),
}
_WORK_HEADERS: dict[str, tuple[str, str]] = {
    "Nats-Msg-Id": ("string", "idempotency key of the work"),
    "traceparent": ("string", "W3C trace context"),
}


def described_components(models: Iterable[type], ref_template: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the schemas of some classes and their components by name, with the comments of fields as descriptions."""
    models = list(models)
    schemas, components = msgspec.json.schema_components(models, ref_template=ref_template)
    for struct in {struct for model in models for struct in _structs(msgspec.inspect.type_info(model))}:
        component = components[struct.__name__]
        if struct.__doc__:
            component["description"] = inspect.cleandoc(struct.__doc__)
        texts = {text_of: text for owner in reversed(struct.__mro__) for text_of, text in _field_texts(owner).items()}
        for field in msgspec.structs.fields(struct):
            if field.name in texts:
                component["properties"][field.encode_name]["description"] = texts[field.name]
    return list(schemas), components


def _structs(shape: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs in a type of `msgspec.inspect`, however deep. No model contains itself."""
    match shape:
        case msgspec.inspect.StructType(cls=struct, fields=fields):
            yield struct
            for field in fields:
                yield from _structs(field.type)
        case msgspec.inspect.Type():
            for name in shape.__struct_fields__:
                yield from _structs(getattr(shape, name))
        case tuple():
            for item in cast("tuple[object, ...]", shape):
                yield from _structs(item)
        case _:
            pass


@cache
def _field_texts(owner: type) -> Mapping[str, str]:
    """Return the comments at the fields that the source of a class declares: name of the field -> text."""
    if not issubclass(owner, msgspec.Struct) or owner is msgspec.Struct:
        return {}
    source = inspect.cleandoc("\n" + inspect.getsource(owner))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    alone = {line for line, text in enumerate(source.splitlines(), 1) if text.lstrip().startswith("#")}
    texts: dict[str, str] = {}
    for node in cast("ast.ClassDef", ast.parse(source).body[0]).body:
        if not isinstance(node, ast.AnnAssign):
            continue
        first = node.lineno
        while first - 1 in alone:
            first -= 1
        lines = [comments[line] for line in range(first, (node.end_lineno or first) + 1) if line in comments]
        if lines:
            texts[cast("ast.Name", node.target).id] = " ".join(lines)
    return texts


def body_schema(entry: EventType) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the body of one event type. It refers to no other file."""
    (schema,), components = described_components([entry.model], "#/$defs/{name}")
    identity = {"$schema": _DIALECT, "$id": f"koordstream/events/{entry.name}.v{entry.schema}.json"}
    return {**identity, **schema, "$defs": components}


def async_api() -> dict[str, Any]:
    """Return the AsyncAPI 3 document: channels (subjects), messages and headers of events, requests and work items."""
    channels: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for entry in CATALOGUE:
        address = f"koord.{{cluster}}.{entry.stream}.{entry.kind}.{{id}}"
        channel = channels.setdefault(
            f"{entry.stream}.{entry.kind}",
            {
                "address": address,
                "parameters": {
                    "cluster": {"description": _CLUSTER["cluster"]},
                    "id": {"description": "uid, or name with '.' written as '_'; namespaced: <ns>=<name>"},
                },
                "messages": {},
            },
        )
        channel["messages"][entry.name] = {"$ref": f"#/components/messages/{entry.name}"}
        messages[entry.name] = {
            "name": entry.name,
            "title": f"{entry.name}, schema {entry.schema}",
            "summary": (entry.model.__doc__ or "").strip().splitlines()[0],
            "contentType": "application/json",
            "headers": {"$ref": "#/components/schemas/Envelope"},
            "payload": {"$ref": f"events/{entry.name}.v{entry.schema}.json"},
        }
        operations.setdefault(
            f"append.{entry.stream}.{entry.kind}",
            {"action": "send", "channel": {"$ref": f"#/channels/{entry.stream}.{entry.kind}"}},
        )
    _add_endpoints(channels, operations, messages)
    _add_work_queues(channels, operations, messages)
    bodies = [body for each in ENDPOINTS for body in (each.request, each.answer)] + [
        each.request for each in WORK_QUEUES
    ]
    _, shapes = described_components([*bodies, ErrorReply, Parked], "#/components/schemas/{name}")
    schemas = {
        **shapes,
        "Envelope": _headers_schema(_HEADERS, ["Nats-Msg-Id", "Koord-Type", "Koord-Schema"]),
        "RequestHeaders": _headers_schema(_REQUEST_HEADERS, []),
        "ReplyHeaders": _headers_schema(_REPLY_HEADERS, []),
        "WorkHeaders": _headers_schema(_WORK_HEADERS, ["Nats-Msg-Id"]),
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Koordstream on NATS",
            "version": "1",
            "description": "Facts (ev), observations (obs), explanations, requests (req), work (cmd) and parked work"
            " (dlq) of one cluster.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _headers_schema(headers: dict[str, tuple[str, str]], required: list[str]) -> dict[str, Any]:
    properties = {name: {"type": kind, "description": text} for name, (kind, text) in headers.items()}
    return {"type": "object", **({"required": required} if required else {}), "properties": properties}


def _message(model: type[msgspec.Struct], headers: str) -> dict[str, Any]:
    return {
        "name": model.__name__,
        "summary": (model.__doc__ or "").strip().splitlines()[0],
        "contentType": "application/json",
        "headers": {"$ref": f"#/components/schemas/{headers}"},
        "payload": {"$ref": f"#/components/schemas/{model.__name__}"},
    }


def _channel(address: str, parameters: dict[str, str], models: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    return {
        "address": address,
        "parameters": {name: {"description": text} for name, text in {**_CLUSTER, **parameters}.items()},
        "messages": {model.__name__: {"$ref": f"#/components/messages/{model.__name__}"} for model in models},
    }


def _add_endpoints(channels: dict[str, Any], operations: dict[str, Any], messages: dict[str, Any]) -> None:
    """Add a channel and an operation with a reply for each endpoint."""
    messages["ErrorReply"] = _message(ErrorReply, "ReplyHeaders")
    for endpoint in ENDPOINTS:
        reply = f"{endpoint.address}.reply"
        messages[endpoint.request.__name__] = _message(endpoint.request, "RequestHeaders")
        messages[endpoint.answer.__name__] = _message(endpoint.answer, "ReplyHeaders")
        channels[reply] = {**_channel("", {}, [endpoint.answer, ErrorReply]), "address": None, "parameters": {}}
        for name in endpoint.addresses:
            channels[name] = _channel(f"koord.{{cluster}}.{name}", {}, [endpoint.request])
            operations[f"answer.{name}"] = {
                "action": "receive",
                "summary": endpoint.summary,
                "channel": {"$ref": f"#/channels/{name}"},
                "reply": {
                    "address": {"location": "$message.header#/reply-to", "description": "the reply subject of NATS"},
                    "channel": {"$ref": f"#/channels/{reply}"},
                },
            }


_DELIVERY = (
    "Requests with one idempotency key are stored once. A worker acknowledges a request after its effect, which may be "
    "repeated. If it is not acknowledged in time, or its effect fails for now, it is delivered again. If it can never "
    "be carried out, or was delivered too often, it becomes a dead letter."
)


def _add_work_queues(channels: dict[str, Any], operations: dict[str, Any], messages: dict[str, Any]) -> None:
    """Add a channel for each work queue, and the channel of parked work items."""
    for queue in WORK_QUEUES:
        messages[queue.request.__name__] = _message(queue.request, "WorkHeaders")
        channels[queue.address] = _channel(f"koord.{{cluster}}.{queue.address}", {}, [queue.request])
        operations[f"work.{queue.address}"] = {
            "action": "receive",
            "summary": queue.summary,
            "description": _DELIVERY,
            "channel": {"$ref": f"#/channels/{queue.address}"},
            "x-idempotency-key": "Nats-Msg-Id",
            "x-ack-policy": "explicit",
            "x-ack-wait-seconds": queue.ack_wait_seconds,
            "x-max-deliver": queue.max_deliver,
        }
    messages["Parked"] = _message(Parked, "WorkHeaders")
    channels["dlq"] = _channel("koord.{cluster}.dlq.{consumer}", {"consumer": "durable name of the worker"}, [Parked])
    operations["park"] = {"action": "send", "channel": {"$ref": "#/channels/dlq"}}


def render() -> dict[str, str]:
    """Return path below the output folder -> text of every generated file."""
    files = {
        f"events/{entry.name}.v{entry.schema}.json": json.dumps(body_schema(entry), indent=2, sort_keys=True) + "\n"
        for entry in CATALOGUE
    }
    files["asyncapi.yaml"] = yaml.safe_dump(async_api(), sort_keys=False, width=120)
    return files


def main() -> None:
    """Write the generated files below the folder that is the first argument of the command line."""
    folder = Path(sys.argv[1])
    for name, text in render().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
