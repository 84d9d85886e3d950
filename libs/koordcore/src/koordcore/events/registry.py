"""Registry of event types: type name -> model, schema version and upcasters.

Rules (event-bus spec, 6): An additive change keeps the version. Any other change increments it and adds a pure upcaster
`v -> v+1`. Stored bytes never change. A renamed type keeps its old name as an alias. A reader halts at a newer version
unless the type is ignorable.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from koordcore.events.envelope import WRITTEN_BY_NODES, Draft, Event, NewEvent, Origin, StoredEvent, seal
from koordcore.events.node_messages import LONGEST_NAME, require_of_node, why_no_fact
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

Body = dict[str, Any]
Upcaster = Callable[[Body], Body]  # Pure function from a body of version v to a body of version v + 1

E = TypeVar("E", bound=Event)


class UnreadableEvent(Exception):
    """This code cannot decode a stored event. The fold that reads the event stops before it (event-bus spec, 8)."""

    def __init__(self, seq: int, type_name: str, reason: str) -> None:
        super().__init__(f"event {seq} of type {type_name!r} cannot be read: {reason}")
        self.seq = seq
        self.type_name = type_name
        self.reason = reason


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """One registered event type: its model, and how its bodies are decoded."""

    name: str  # Name in the header `Koord-Type`, equal to the class name of the model
    model: type[Event]  # Class of the decoded body
    stream: str  # Stream of its events: "ev" (facts), "obs" (observations), "explanations", "audit" (requests)
    kind: str  # Aggregate kind whose subject its events have, for example "pod"
    schema: int  # Current version of the body's schema, from 1
    # Version v -> function that turns a body of version v into one of v + 1; complete for 1..schema-1.
    upcasters: dict[int, Upcaster]
    aliases: tuple[str, ...]  # Earlier names of the type
    ignorable: bool  # Whether a reader may ignore events of a version that is newer than its code
    decoder: msgspec.json.Decoder[Event]  # Decoder of bodies of the current version


class Catalogue:
    """The registered event types.

    It seals drafts and decodes stored events. Modules of `koordcore.events` register theirs.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, EventType] = {}
        self._by_model: dict[type[Event], EventType] = {}

    def register(
        self,
        *,
        kind: str,
        stream: str = "ev",
        schema: int = 1,
        upcasters: dict[int, Upcaster] | None = None,
        aliases: tuple[str, ...] = (),
        ignorable: bool = False,
    ) -> Callable[[type[E]], type[E]]:
        """Return a class decorator that registers an event model under its class name.

        Args:
            kind: Aggregate kind of its events.
            stream: "ev" (facts), "obs" (observations), "explanations" or "audit" (requests).
            schema: Current version of the body's schema, from 1.
            upcasters: Version v -> function that turns a body of version v into one of v + 1.
            aliases: Earlier names of the type.
            ignorable: Whether a reader may ignore events of a version that is newer than its code.

        Raises:
            AssertionError: A name is used twice, or an upcaster is missing.
        """

        def decorate(model: type[E]) -> type[E]:
            chain = upcasters or {}
            assert set(chain) == set(range(1, schema)), f"{model.__name__}: upcasters must cover 1..{schema - 1}"
            entry = EventType(
                name=model.__name__,
                model=model,
                stream=stream,
                kind=kind,
                schema=schema,
                upcasters=chain,
                aliases=aliases,
                ignorable=ignorable,
                decoder=msgspec.json.Decoder(model),
            )
            for name in (entry.name, *aliases):
                assert name not in self._by_name, f"event type {name!r} is registered twice"
                self._by_name[name] = entry
            self._by_model[model] = entry
            return model

        return decorate

    def __iter__(self) -> Iterator[EventType]:
        """Iterate over the types in order of stream, kind and name."""
        return iter(sorted(self._by_model.values(), key=lambda entry: (entry.stream, entry.kind, entry.name)))

    def of(self, model: type[Event]) -> EventType:
        """Return the event type of a model class.

        Raises:
            KeyError: The class is not registered.
        """
        return self._by_model[model]

    def find(self, name: str) -> EventType | None:
        """Return the event type with this name or alias; None if no type has it."""
        return self._by_name.get(name)

    def seal(self, drafts: list[Draft], origin: Origin, bodies: Sequence[bytes] = ()) -> list[NewEvent]:
        """Return the drafts of one decision as events that can be appended, in the order of `drafts`. `bodies`: the
        encoded events of all drafts, if they were encoded already.
        """
        return [
            seal(draft, origin, index, self._by_model[type(draft.event)].schema, bodies[index] if bodies else None)
            for index, draft in enumerate(drafts)
        ]

    def read(self, stored: StoredEvent) -> Event | None:
        """Decode a stored event for a fold. Pass over what is no fact (`why_no_fact`), and what a node wrote on its own
        aggregates and nobody can read: one node must not stop the folds of the cluster. Every fold passes over the same
        messages, because the decision depends on the message alone.

        Returns:
            The event. None if it is passed over (`why_passed_over` gives the reason), or if its type is ignorable and
            its version is newer than this code.

        Raises:
            UnreadableEvent: An event of the control plane cannot be decoded. The fold has to stop before it.
        """
        stored = stored.with_parsed_headers()
        if why_no_fact(stored):
            return None
        if stored.ref.kind not in WRITTEN_BY_NODES:
            return self.decode(stored)
        try:
            return self.decode(stored)
        except UnreadableEvent:
            return None

    def why_passed_over(self, stored: StoredEvent) -> str:
        """Return why `read` returns None for a message, one sentence; "" if it returns the event, or ignores its
        version.

        Raises:
            UnreadableEvent: As `read`.
        """
        if reason := why_no_fact(stored):
            return reason
        try:
            self.decode(stored)
        except UnreadableEvent as error:
            if stored.ref.kind in WRITTEN_BY_NODES:
                return str(error)
            raise
        return ""

    def decode(self, stored: StoredEvent) -> Event | None:
        """Decode the body of a stored event. If its schema version is old, upcast it to the current one. An event that
        a node wrote must also fit `require_of_node`.

        Returns:
            The event. None if the type is ignorable and the version is newer than this code.

        Raises:
            UnreadableEvent: The type is unknown, the aggregate has the wrong kind, the version is newer, or the body is
                invalid.
        """
        name = stored.type
        entry = self._by_name.get(name)
        if entry is None:
            raise UnreadableEvent(stored.seq, name[:LONGEST_NAME], "no such event type")
        kind = stored.ref.kind
        if entry.kind != kind:
            raise UnreadableEvent(stored.seq, name, f"belongs to {entry.kind!r}, found on {kind!r}")
        version = stored.schema
        try:
            if version == entry.schema:
                event = entry.decoder.decode(stored.body)
            elif version > entry.schema:
                if entry.ignorable:
                    return None
                raise UnreadableEvent(stored.seq, name, f"schema {version} is newer than {entry.schema}")
            elif version < 1:
                raise UnreadableEvent(stored.seq, name, "header Koord-Schema is missing or no version number")
            else:
                body: Body = codec.decode(stored.body, dict[str, Any])
                for step in range(version, entry.schema):
                    body = entry.upcasters[step](body)
                event = codec.convert(body, entry.model)
            if kind in WRITTEN_BY_NODES:
                require_of_node(stored, event)
        except InvalidInput as cause:
            raise UnreadableEvent(stored.seq, name, cause.sentence()) from cause
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError) as cause:
            raise UnreadableEvent(stored.seq, name, f"body: {cause}") from cause
        return event


CATALOGUE = Catalogue()  # The catalogue of the process. Import it from `koordcore.events`, where it is complete.
