"""Type name -> model, schema version, upcasters: how stored bytes become a typed event again.

Rules (event-bus spec, 6): an additive change keeps the version; anything else is version + 1 with one pure upcaster
`v -> v+1`; stored bytes never change; a renamed type keeps its old name as an alias; a reader that meets a newer
version stops, unless the type is flagged ignorable.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from koordcore.events.envelope import Draft, Event, NewEvent, Origin, StoredEvent, seal
from koordcore.values import codec

Body = dict[str, Any]
Upcaster = Callable[[Body], Body]
"""Body of version v -> body of version v + 1; pure."""

E = TypeVar("E", bound=Event)


class UnreadableEvent(Exception):
    """A stored event that this code cannot read: a fold halts before it (event-bus spec, 8)."""

    def __init__(self, seq: int, type_name: str, reason: str) -> None:
        super().__init__(f"event {seq} of type {type_name!r} cannot be read: {reason}")
        self.seq = seq
        self.type_name = type_name
        self.reason = reason


class EventType(msgspec.Struct, frozen=True, kw_only=True):
    """One registered type.

    Attributes:
        stream: "ev" (facts), "obs" (observations), "explanations".
        kind: The aggregate kind whose subject carries it.
        schema: Current version, from 1.
        upcasters: Upcasters[v] turns version v into v + 1; complete for 1..schema-1.
    """

    name: str
    model: type[Event]
    stream: str
    kind: str
    schema: int
    upcasters: dict[int, Upcaster]
    aliases: tuple[str, ...]
    ignorable: bool
    decoder: msgspec.json.Decoder[Event]


class Catalogue:
    """All event types of the system, filled at import time by the modules of `koordcore.events`."""

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
        """Return class decorator that registers an event model under its class name.

        Raises:
            AssertionError: A reused name or an incomplete chain of upcasters: a bug, found at import.
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
        """Return types in order of stream, kind, name."""
        return iter(sorted(self._by_model.values(), key=lambda entry: (entry.stream, entry.kind, entry.name)))

    def of(self, model: type[Event]) -> EventType:
        """Return the entry of a model."""
        return self._by_model[model]

    def find(self, name: str) -> EventType | None:
        """Return the entry of a type name or alias; None when unknown."""
        return self._by_name.get(name)

    def seal(self, drafts: list[Draft], origin: Origin) -> list[NewEvent]:
        """Return the appendable events of one decision, in order."""
        return [
            seal(draft, origin, index, self._by_model[type(draft.event)].schema) for index, draft in enumerate(drafts)
        ]

    def read(self, stored: StoredEvent) -> Event | None:
        """Return the typed event of a stored one, upcast to the current version.

        Returns:
            None for an ignorable type in a version newer than this code knows.

        Raises:
            UnreadableEvent: An unknown type, an aggregate of the wrong kind, a newer version, or a bad body.
        """
        name = stored.type
        entry = self._by_name.get(name)
        if entry is None:
            raise UnreadableEvent(stored.seq, name, "no such event type")
        if entry.kind != stored.ref.kind:
            raise UnreadableEvent(stored.seq, name, f"belongs to {entry.kind!r}, found on {stored.ref.kind!r}")
        version = stored.schema
        try:
            if version == entry.schema:
                return entry.decoder.decode(stored.body)
            if version > entry.schema:
                if entry.ignorable:
                    return None
                raise UnreadableEvent(stored.seq, name, f"schema {version} is newer than {entry.schema}")
            if version < 1:
                raise UnreadableEvent(stored.seq, name, "header Koord-Schema is missing or no version number")
            body: Body = codec.decode(stored.body, dict[str, Any])
            for step in range(version, entry.schema):
                body = entry.upcasters[step](body)
            return codec.convert(body, entry.model)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, ValueError) as cause:
            raise UnreadableEvent(stored.seq, name, f"body: {cause}") from cause


CATALOGUE = Catalogue()
"""The process-wide catalogue; import it from `koordcore.events`, where it is complete."""
