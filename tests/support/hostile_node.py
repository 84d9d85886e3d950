"""Messages that a node in the hands of an attacker may write on its own aggregates."""

import contextlib
import json
import random
from collections.abc import Sequence

import msgspec
from koordcore.bus.client.wire import encode_headers
from koordcore.bus.read.event_headers import EventHeaders
from koordcore.events.envelope import AggregateRef, StoredEvent
from support.mutations import STRANGE_TEXTS, damaged, mutated

_STRANGE_HEADERS = ["", "0", "-1", "99999", "x" * 3000, "PodPlaced", "AgentStarted", "ü", "1.5", "9999-12-31T00:00:00Z"]
_ANSWER = {"Nats-Subject": "koord.c.ev.pod.p", "Nats-Sequence": "3", "Nats-Stream": "KOORD_EV_c"}


def hostile(rng: random.Random, facts: Sequence[StoredEvent], seq: int) -> StoredEvent:
    """A message on an aggregate of a node, made of one of these valid facts: with another body, other headers, the
    headers of a copied answer, no headers, bytes that are no headers, or a fact of another kind of aggregate.
    """
    own = [fact for fact in facts if fact.ref.kind in ("nodestate", "criproxy")]
    fact = rng.choice(own)
    body, headers = fact.body, dict(fact.headers)
    ref = AggregateRef(rng.choice(["nodestate", "criproxy"]), rng.choice([fact.ref.id, "zzz", "x" * 600]))
    match rng.randrange(9):
        case 0:
            body = damaged(rng, body)
        case 1:
            body = rng.choice(STRANGE_TEXTS)
        case 2:
            headers[rng.choice(sorted(headers))] = rng.choice(_STRANGE_HEADERS)
        case 3:
            headers |= _ANSWER
        case 4:
            headers = {}
        case 5:
            block = (
                b"NATS/1.0" + rng.choice([b"", b"\r\n", b" 503\r\n"]) + rng.randbytes(rng.randrange(200)) + b"\r\n\r\n"
            )
            return StoredEvent(seq, ref, EventHeaders(block), body, fact.stored_at_ns)
        case 6:
            other = rng.choice(facts)
            body, headers = other.body, dict(other.headers)
        case 7:
            headers.pop(rng.choice(sorted(headers)))
        case _:
            with contextlib.suppress(msgspec.DecodeError):
                body = json.dumps(mutated(rng, msgspec.json.decode(body))).encode()
    if rng.random() < 0.5:
        with contextlib.suppress(ValueError):
            return StoredEvent(seq, ref, EventHeaders(b"NATS/1.0\r\n" + encode_headers(headers) + b"\r\n"), body)
    return StoredEvent(seq, ref, headers, body, fact.stored_at_ns)
