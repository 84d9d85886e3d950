"""Audit records fit into the log."""

import pytest
from koordcore.bus.client.wire import encode_headers
from koordcore.bus.setup.streams import LARGEST_RECORD
from koordcore.events import CATALOGUE
from koordcore.events.admission import RequestAudited
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.service.access.gate import MOST_OBJECTS
from koordcore.service.access.records import LONGEST_ID, fitting
from koordcore.values.shortened import shortened


def record(text: str, *, objects: int = MOST_OBJECTS) -> RequestAudited:
    return RequestAudited(
        subject=f"oidc:{text}",
        roles=("metrics", "view", "operate"),
        method="DELETE",
        route="/v1/objects/{kind}/{namespace}/{name}",
        objects=tuple(f"Pod default/{number}{text}" for number in range(objects)),
        status=200,
        request=text,
    )


@pytest.mark.parametrize("letter", ["x", "\x1b", "\u20ac", "\U0001f600", "\\"])
def test_the_log_takes_a_record_with_the_longest_texts(letter: str):
    long = fitting(record(letter * 5000))
    origin = Origin(
        causation_id="0" * 36,
        correlation_id=shortened(long.request, LONGEST_ID),
        actor=f"descheduler/{'x' * 253}",
        occurred_at="2026-01-01T00:00:00.000000Z",
    )
    (sealed,) = CATALOGUE.seal([Draft(AggregateRef("request", "descheduler"), long, 0)], origin)
    assert len(encode_headers(sealed.headers)) + len(sealed.body) <= LARGEST_RECORD
    assert len(set(long.objects)) == MOST_OBJECTS, "texts with one beginning differ"


@pytest.mark.parametrize("objects", [1, MOST_OBJECTS])
def test_usual_names_are_kept_whole(objects: int):
    usual = record("web-7c9f6b8d5-x2x4z.shop", objects=objects)
    assert fitting(usual) == usual
