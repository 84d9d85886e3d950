"""The checked-in schemas say what the models say."""

import json
from pathlib import Path

import jsonschema
import pytest
from koordcore.events import CATALOGUE
from koordcore.events.export import body_schema, render
from koordcore.events.registry import EventType
from koordcore.state.evolution.registry import EVOLVE

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


def test_every_fact_has_an_evolve_function() -> None:
    facts = {entry.model for entry in CATALOGUE if entry.stream == "ev"}

    assert facts == set(EVOLVE)
