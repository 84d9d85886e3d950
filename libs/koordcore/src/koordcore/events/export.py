"""`python -m koordcore.events.export DIR`: the catalogue as files that others can read, generated and checked in.

    DIR/events/<Type>.v<schema>.json    JSON Schema 2020-12 of each event's body
    DIR/asyncapi.yaml                   AsyncAPI 3: channels (subjects), messages, headers

A test fails when the files differ from what the models say.
source    event-bus spec, 2, 3.1, 6
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from koordcore.events import CATALOGUE
from koordcore.events.registry import EventType

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_HEADERS: dict[str, tuple[str, str]] = {
    "Nats-Msg-Id": ("string", "event id; UUIDv5 of causation id, aggregate and index in the decision"),
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


def body_schema(entry: EventType) -> dict[str, Any]:
    """JSON Schema of an event's body, self-contained."""
    schema = msgspec.json.schema(entry.model)
    return {"$schema": _DIALECT, "$id": f"koordstream/events/{entry.name}.v{entry.schema}.json", **schema}


def async_api() -> dict[str, Any]:
    """The AsyncAPI 3 document of all streams."""
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
                    "cluster": {"description": "id of the cluster"},
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
    envelope = {
        "type": "object",
        "required": ["Nats-Msg-Id", "Koord-Type", "Koord-Schema"],
        "properties": {name: {"type": kind, "description": text} for name, (kind, text) in _HEADERS.items()},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Koordstream event log",
            "version": "1",
            "description": "Facts (ev), observations (obs) and explanations of one cluster on NATS JetStream.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": {"Envelope": envelope}},
    }


def render() -> dict[str, str]:
    """Relative path -> text of every generated file."""
    files = {
        f"events/{entry.name}.v{entry.schema}.json": json.dumps(body_schema(entry), indent=2, sort_keys=True) + "\n"
        for entry in CATALOGUE
    }
    files["asyncapi.yaml"] = yaml.safe_dump(async_api(), sort_keys=False, width=120)
    return files


def main() -> None:
    """Write the files below the folder named on the command line."""
    folder = Path(sys.argv[1])
    for name, text in render().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
