"""The checked-in schemas say what the models say."""

import json
from pathlib import Path

import jsonschema
import pytest
from koordcore.events import CATALOGUE
from koordcore.events.export import async_api, body_schema, render
from koordcore.events.registry import EventType
from koordcore.state.registry import EVOLVE

SCHEMAS = Path(__file__).parents[4] / "schemas"


def test_checked_in_schemas_equal_the_generated_ones() -> None:
    generated = render()
    present = {str(path.relative_to(SCHEMAS)) for path in (SCHEMAS / "events").glob("*.json")} | {"asyncapi.yaml"}

    assert present == set(generated), "run `make schemas`"
    for name, text in generated.items():
        assert (SCHEMAS / name).read_text(encoding="utf-8") == text, f"{name} has drifted: run `make schemas`"


@pytest.mark.parametrize("entry", list(CATALOGUE), ids=lambda entry: entry.name)
def test_every_body_schema_is_a_valid_json_schema(entry: EventType) -> None:
    schema = body_schema(entry)
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema)


def test_a_field_is_described_by_the_comment_at_it() -> None:
    shape = next(body_schema(entry) for entry in CATALOGUE if entry.name == "PodBound")["$defs"]["PodBound"]

    assert shape["description"] == "The API server bound the pod to the node of its placement."
    assert shape["properties"]["placement"]["description"] == "Sequence of the `PodPlaced` that was bound"
    assert shape["properties"]["bound_at"]["description"].endswith('"" if `annotations` and `labels` are not recorded.')


def test_the_document_names_endpoints_with_their_replies_and_the_channel_of_parked_work() -> None:
    document = async_api()
    shapes = document["components"]

    answer = document["operations"]["answer.req.projector.state_hash"]
    request = document["channels"]["req.projector.state_hash"]
    reply = document["channels"]["req.projector.state_hash.reply"]
    assert request["address"] == "koord.{cluster}.req.projector.state_hash"
    assert answer["reply"]["channel"] == {"$ref": "#/channels/req.projector.state_hash.reply"}
    assert set(reply["messages"]) == {"StateHash", "ErrorReply"}
    assert document["channels"]["dlq"]["address"] == "koord.{cluster}.dlq.{consumer}"
    for name in ("StateHashRequest", "StateHash", "ErrorReply", "Parked"):
        assert shapes["messages"][name]["payload"] == {"$ref": f"#/components/schemas/{name}"}
        jsonschema.Draft202012Validator.check_schema(shapes["schemas"][name])


def test_every_fact_has_an_evolve_function() -> None:
    facts = {entry.model for entry in CATALOGUE if entry.stream == "ev"}

    assert facts == set(EVOLVE)
