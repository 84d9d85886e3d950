"""Headers of delivered events: what is read without parsing equals what is parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.bus.client.wire import HEADER_LINE, encode_headers
from koordcore.bus.read.event_headers import EventHeaders
from koordcore.events import envelope
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent, seal
from koordcore.events.nodestate import PodsStarted

REF = AggregateRef("nodestate", "node-1")
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=12)


def delivered(headers: dict[str, str], *, behind: str = "") -> StoredEvent:
    block = HEADER_LINE + encode_headers(headers) + behind.encode() + b"\r\n"
    return StoredEvent(7, REF, EventHeaders(block), b"{}")


def sealed(**changes: str | int) -> dict[str, str]:
    fields: dict[str, str | int] = {
        "causation_id": "cause",
        "correlation_id": "uid",
        "actor": "agent/1",
        "occurred_at": "2026-10-01T06:45:27.992912Z",
    }
    origin = Origin(**{**fields, **changes})  # type: ignore[arg-type]  # the fields of Origin
    return seal(Draft(REF, PodsStarted(pods=["uid"]), 3), origin, 0, 1).headers


@pytest.mark.parametrize("behind", ["", f"{envelope.HEADER_EXPECTED_LAST}: 3\r\n"])
@pytest.mark.parametrize("trace", [{}, {"traceparent": "00-1-2-01"}, {"traceparent": "00-1-2-01", "tracestate": "ä=1"}])
def test_sealed_headers_are_read_without_parsing(trace: dict[str, str], behind: str) -> None:
    event = delivered(sealed(epoch=4, based_on=1234, **trace), behind=behind)
    texts = event.header_texts()
    assert texts is not None
    assert texts == (
        *(event.event_id, "PodsStarted", "1", "cause", "uid", "agent/1", "4", event.occurred_at, "1234"),
        trace.get("traceparent", ""),
    )


@given(values, values, values)
def test_other_characters_are_left_to_the_parser(cause: str, actor: str, occurred_at: str) -> None:
    event = delivered(sealed(causation_id=cause, actor=actor, occurred_at=occurred_at))
    if (texts := event.header_texts()) is not None:
        assert (texts.causation_id, texts.actor, texts.occurred_at) == (event.causation_id, event.actor, occurred_at)
        assert (cause + actor + occurred_at).isascii()
        assert not set("\\\t\0") & set(cause + actor + occurred_at)


@pytest.mark.parametrize(
    "other",
    [
        {"Koord-Type": "PodPlaced", **sealed()},
        {name: value for name, value in sealed().items() if name != "Koord-Actor"},
        {**sealed(), "Koord-Epoch": "1" * 19},
        {**sealed(), "Koord-Schema": ""},
        {**sealed(), "Koord-Based-On": "-1"},
        {**sealed(), "Unknown": "1"},
    ],
    ids=["other order", "without actor", "long epoch", "no schema", "negative position", "unknown header"],
)
def test_another_layout_is_left_to_the_parser(other: dict[str, str]) -> None:
    assert delivered(other).header_texts() is None


def test_a_header_that_comes_twice_is_left_to_the_parser() -> None:
    assert delivered(sealed(), behind="Koord-Type: PodPlaced\r\n").header_texts() is None


def test_headers_that_are_parsed_already_have_no_texts() -> None:
    assert StoredEvent(7, REF, sealed(), b"{}").header_texts() is None


@pytest.mark.parametrize("text", ["", "-1", "one", "1" * 5_000])
def test_a_header_that_is_not_a_number_below_10_to_the_18_counts_as_missing(text: str) -> None:
    names = (
        envelope.HEADER_SCHEMA,
        envelope.HEADER_EPOCH,
        envelope.HEADER_BASED_ON,
        envelope.HEADER_EXPECTED_LAST,
    )
    event = StoredEvent(7, REF, {**sealed(), **dict.fromkeys(names, text)}, b"{}")
    assert (event.schema, event.epoch, event.based_on, event.expected_last) == (0, 0, 0, None)
