"""What etcd is to an API server: objects, one version counter for all, a history until it is compacted."""

import asyncio
import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]
"""(namespace or "", name)"""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history: ADDED, MODIFIED or DELETED, with the object as of `version`."""

    version: int
    type: str
    object: Json
    before: Json | None


@dataclass(slots=True, eq=False)
class Shelf:
    """Objects of one resource and the changes that watches may still ask for."""

    objects: dict[Key, Json] = field(default_factory=dict[Key, Json])
    history: deque[Change] = field(default_factory=lambda: deque[Change](maxlen=200_000))
    compacted: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Store:
    """All objects. Versions are opaque to clients: they begin somewhere and have gaps."""

    def __init__(self, first_version: int = 1000) -> None:
        self.version = first_version
        self._shelves: dict[tuple[str, str], Shelf] = {}

    def shelf(self, resource: tuple[str, str]) -> Shelf:
        """The objects of a resource (group, plural)."""
        return self._shelves.setdefault(resource, Shelf())

    def put(self, resource: tuple[str, str], key: Key, document: Json) -> Json:
        """Store a new version of an object; returns it with its resourceVersion."""
        shelf = self.shelf(resource)
        self.version += 1
        stored = copy.deepcopy(document)
        stored["metadata"]["resourceVersion"] = str(self.version)
        before = shelf.objects.get(key)
        shelf.objects[key] = stored
        self._record(shelf, Change(self.version, "MODIFIED" if before else "ADDED", stored, before))
        return stored

    def remove(self, resource: tuple[str, str], key: Key) -> Json:
        """Remove an object; returns its last state with the version of the deletion."""
        shelf = self.shelf(resource)
        self.version += 1
        before = shelf.objects.pop(key)
        gone = copy.deepcopy(before)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._record(shelf, Change(self.version, "DELETED", gone, before))
        return gone

    def _record(self, shelf: Shelf, change: Change) -> None:
        if len(shelf.history) == shelf.history.maxlen:
            shelf.compacted = shelf.history[0].version
        shelf.history.append(change)
        event, shelf.changed = shelf.changed, asyncio.Event()
        event.set()

    def compact(self, resource: tuple[str, str] | None = None) -> None:
        """Forget the history: watches and continued lists from before now are answered with 410."""
        for key, shelf in self._shelves.items():
            if resource is None or key == resource:
                shelf.history.clear()
                shelf.compacted = self.version

    def since(self, resource: tuple[str, str], version: int) -> Iterator[Change]:
        """Changes after a version, in order."""
        history = self.shelf(resource).history
        newer: list[Change] = []
        for change in reversed(history):
            if change.version <= version:
                break
            newer.append(change)
        return reversed(newer)
