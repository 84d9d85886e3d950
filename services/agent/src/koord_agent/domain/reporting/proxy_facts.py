"""Facts of the node's CRI proxy, which the agent appends for it: what the agent accepts."""

from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_ACTOR, HEADER_ID, AggregateRef, NewEvent, StoredEvent, name_token
from koordcore.events.registry import UnreadableEvent
from koordcore.runtime_api.proxy_facts import KIND
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

_OF_THE_SERVER: Final = "nats-"


def aggregate_of_proxy(node: str) -> AggregateRef:
    """Return the aggregate of the CRI proxy of a node."""
    return AggregateRef(KIND, name_token(node))


def accepted_fact(message: bytes, node: str) -> NewEvent:
    """Return the fact in a message of the CRI proxy.

    Args:
        message: JSON of a `NewEvent`.
        node: Name of the node.

    Raises:
        InvalidInput: It is not a fact of this node's proxy as the catalogue describes it, or a header would be an order
            to the NATS server.
    """
    try:
        fact = codec.decode(message, NewEvent)
    except codec.DecodeError as error:
        raise InvalidInput(f"a sealed fact ({error})", message.decode(errors="replace"), "message") from error
    if fact.ref != aggregate_of_proxy(node):
        raise InvalidInput(str(aggregate_of_proxy(node)), str(fact.ref), "ref")
    if fact.expected_last < 0:
        raise InvalidInput("a position from 0", fact.expected_last, "expected_last")
    if not fact.headers.get(HEADER_ID):
        raise InvalidInput("the id of the fact", fact.headers.get(HEADER_ID), f"headers.{HEADER_ID}")
    if fact.headers.get(HEADER_ACTOR) != f"{KIND}/{node}":
        raise InvalidInput(f"{KIND}/{node}", fact.headers.get(HEADER_ACTOR), f"headers.{HEADER_ACTOR}")
    for name in fact.headers:
        if name.lower().startswith(_OF_THE_SERVER) and name != HEADER_ID:
            raise InvalidInput(f"without orders to the server, except {HEADER_ID}", name, "headers")
    stored = StoredEvent(fact.expected_last, fact.ref, fact.headers, fact.body)
    try:
        CATALOGUE.read(stored)
    except UnreadableEvent as error:
        body = fact.body.decode(errors="replace")
        raise InvalidInput(f"a {stored.type or 'fact'} of the catalogue ({error.reason})", body, "body") from error
    return fact
