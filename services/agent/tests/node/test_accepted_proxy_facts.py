"""What the agent accepts from the CRI proxy of its node: facts of this proxy as the catalogue describes them."""

import msgspec
import pytest
from koord_agent.domain.hooks.facts import accepted_fact
from koordcore.events import CATALOGUE
from koordcore.events.criproxy import ProxyFactsDropped
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin
from koordcore.events.nodestate import PodsStarted
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

NODE = "n.1"
REF = AggregateRef("criproxy", "n_1")
DROPPED = ProxyFactsDropped(facts=3)


def fact(event: Event = DROPPED, ref: AggregateRef = REF) -> NewEvent:
    origin = Origin(causation_id="c", correlation_id=NODE, actor=f"criproxy/{NODE}", occurred_at="2026-01-01T00:00:00Z")
    return CATALOGUE.seal([Draft(ref, event, 7)], origin)[0]


def with_header(name: str, value: str) -> NewEvent:
    plain = fact()
    return msgspec.structs.replace(plain, headers={**plain.headers, name: value})


def test_a_fact_of_the_own_proxy_is_accepted_unchanged() -> None:
    assert accepted_fact(codec.encode(fact()), NODE) == fact()


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (b"\xff", "message: must be a sealed fact"),
        (b"{}", "message: must be a sealed fact .*ref"),
        (codec.encode(fact(ref=AggregateRef("criproxy", "n_2"))), r"ref: must be criproxy\.n_1, got 'criproxy\.n_2'"),
        (codec.encode(fact(PodsStarted(pods=[]), AggregateRef("nodestate", "n_1"))), r"ref: must be criproxy\.n_1"),
        (codec.encode(fact(PodsStarted(pods=[]))), "body: must be a PodsStarted of the catalogue .*belongs to"),
        (codec.encode(msgspec.structs.replace(fact(), body=b'{"facts":"x"}')), r"body: .*\$\.facts.*, got '{\"facts\""),
        (codec.encode(msgspec.structs.replace(fact(), expected_last=-1)), "expected_last: must be a position .*-1"),
        (codec.encode(with_header("Nats-Msg-Id", "")), "Nats-Msg-Id: must be the id of the fact, got ''"),
        (codec.encode(with_header("Koord-Actor", "agent/x")), r"Koord-Actor: must be criproxy/n\.1, got 'agent/x'"),
        (codec.encode(with_header("nats-rollup", "all")), "headers: must be without orders to the server"),
        (codec.encode(with_header("Koord-Schema", "99")), "schema 99 is newer"),
        (codec.encode(with_header("Koord-Type", "Nothing")), "no such event type"),
    ],
)
def test_everything_else_is_refused_with_field_rule_and_value(message: bytes, refusal: str) -> None:
    with pytest.raises(InvalidInput, match=refusal):
        accepted_fact(message, NODE)
