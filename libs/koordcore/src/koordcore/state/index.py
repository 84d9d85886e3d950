"""Indexes of a folded state that the services' decisions read: pods, custom resources, usage reports, priorities.

Each one is kept current from the event that changes it. No change costs work that grows with the cluster.
"""

from collections.abc import Callable, Iterator, KeysView, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from koordcore.events.objects import plural_of
from koordcore.protocol.objects import KubeStruct, object_from_json
from koordcore.state.aggregates import CustomObjectState, NodeSpecState, PriorityClassState
from koordcore.state.cluster import ClusterState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")
MOST_UNKNOWN_NODES: Final = 1024
"""Largest number of nodes that do not exist whose usage reports are kept."""
_NONE: Final[dict[str, None]] = {}


class IdsByKey(Generic[K]):
    """Ids by their keys. An id may have several, and one without keys is not kept."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[K, ...]] = {}
        self._ids: dict[K, dict[str, None]] = {}

    def put(self, id_: str, *keys: K) -> None:
        """Replace the keys of an id. No keys: forget the id."""
        before = self._keys.pop(id_, ())
        if keys:
            self._keys[id_] = keys
        if keys != before:
            for key in before:
                group = self._ids.get(key)
                if group is not None:
                    group.pop(id_, None)
                    if not group:
                        del self._ids[key]
            for key in keys:
                self._ids.setdefault(key, {})[id_] = None

    def keys_of(self, id_: str) -> tuple[K, ...]:
        return self._keys.get(id_, ())

    def of(self, key: K) -> KeysView[str]:
        return self._ids.get(key, _NONE).keys()

    def keys(self) -> KeysView[K]:
        """The keys that have at least one id."""
        return self._ids.keys()


class IdsByName(Generic[K]):
    """Ids by the one name of each. Two ids of one name are a fault: a former leader that was paused may create an
    object that its successor has created, too. Then the id that was given last is found, and after it the others.
    """

    def __init__(self) -> None:
        self._newest: dict[K, str] = {}
        self._others: dict[K, list[str]] = {}
        """Name -> its other ids, the one that was given last at the end. Almost always empty."""

    def give(self, id_: str, name: K) -> None:
        """Also for an id that has the name: it is the newest one then."""
        former = self._newest.get(name, id_)
        self._newest[name] = id_
        if former != id_:
            others = self._others.setdefault(name, [])
            if id_ in others:
                others.remove(id_)
            others.append(former)

    def take(self, id_: str, name: K) -> None:
        """Take the name from an id that has it."""
        others = self._others.get(name)
        if others is None:
            del self._newest[name]
            return
        if self._newest[name] == id_:
            self._newest[name] = others.pop()
        else:
            others.remove(id_)
        if not others:
            del self._others[name]

    def newest(self, name: K) -> str | None:
        return self._newest.get(name)

    def all(self, name: K) -> list[str]:
        """Return the ids of a name, the newest one first."""
        found = self._newest.get(name)
        return [] if found is None else [found, *reversed(self._others.get(name, ()))]

    def duplicates(self) -> list[str]:
        """Return all ids of the names that more than one id has."""
        return [id_ for name in self._others for id_ in self.all(name)]


class PodKeys(NamedTuple):
    """What a pod is found by. The service says which node and which owners count."""

    namespace: str
    name: str
    node: str  # "" for none
    owners: tuple[str, ...]  # uids


class PodIndex:
    """Uids of pods by name, by node and by owner."""

    def __init__(self) -> None:
        self._keys: dict[str, PodKeys] = {}
        self._names = IdsByName[tuple[str, str]]()
        self._on_node = IdsByKey[str]()
        self._of_owner = IdsByKey[str]()

    def change(self, uid: str, after: PodKeys | None) -> PodKeys | None:
        """Add or move a pod, or remove it with None. Return its keys before, None if it was not there.

        Of several pods with one name, the one that changed last is found by it.
        """
        before = self._keys.pop(uid, None)
        if before is not None and (after is None or after[:2] != before[:2]):
            self._names.take(uid, (before.namespace, before.name))
        if after is None:
            self._on_node.put(uid)
            self._of_owner.put(uid)
        else:
            self._keys[uid] = after
            self._names.give(uid, (after.namespace, after.name))
            self._on_node.put(uid, *([after.node] if after.node else []))
            self._of_owner.put(uid, *after.owners)
        return before

    def node_of(self, uid: str) -> str:
        """ "" for a pod without a node, and for no pod."""
        keys = self._keys.get(uid)
        return "" if keys is None else keys.node

    def named(self, namespace: str, name: str) -> str | None:
        return self._names.newest((namespace, name))

    def all_named(self, namespace: str, name: str) -> list[str]:
        """Return the uids of all pods of a name, the one that changed last first."""
        return self._names.all((namespace, name))

    def duplicates(self) -> list[str]:
        """Return the uids of all pods whose name another pod has as well."""
        return self._names.duplicates()

    def on_node(self, node: str) -> KeysView[str]:
        return self._on_node.of(node)

    def of_owner(self, owner: str) -> KeysView[str]:
        return self._of_owner.of(owner)

    def owners(self) -> KeysView[str]:
        """Return the uids of all objects that own at least one pod."""
        return self._of_owner.keys()


class CustomObjects:
    """The custom resources of a state, by the plural name of their kind. Each version is decoded once.

    Args:
        state: The folded state. After each event about a custom resource, `changed` is called.
        unreadable: Gets "customspec.<id>" -> reason of the objects that are not valid.
    """

    def __init__(self, state: ClusterState, unreadable: dict[str, str]) -> None:
        self._state = state
        self._unreadable = unreadable
        self._ids = IdsByKey[str]()
        self._decoded: dict[str, tuple[object, object]] = {}
        """Id -> its last object as JSON, and the decoded object; None: it is not valid."""
        self._versions: dict[str, int] = {}
        self._loaded_at = state.position
        for id_ in state.of_kind(CustomObjectState):
            self._ids.put(id_, plural_of(id_))

    def changed(self, id_: str) -> None:
        """Note that an event about a custom resource was applied."""
        plural = plural_of(id_)
        self._decoded.pop(id_, None)
        self._unreadable.pop(f"customspec.{id_}", None)
        self._versions[plural] = self._state.position
        self._ids.put(id_, *([plural] if id_ in self._state.of_kind(CustomObjectState) else []))

    def version(self, plural: str) -> int:
        """Return a number that grows with each change of an object of a kind, so that caches can be checked."""
        return self._versions.get(plural, self._loaded_at)

    def ids(self, plural: str) -> KeysView[str]:
        return self._ids.of(plural)

    def documents(self, plural: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield id and object of the custom resources of a kind, as JSON."""
        states = self._state.of_kind(CustomObjectState)
        for id_ in self.ids(plural):
            state = states.get(id_)
            if state is not None:
                yield id_, state.object

    def decoded(self, plural: str, kind: type[T], read: Callable[[object], T] | None = None) -> Iterator[T]:
        """Yield the custom resources of a kind, decoded. Those that are not valid are left out.

        Args:
            kind: Type of the decoded objects, one per plural.
            read: Decodes a JSON object, or raises InvalidInput or codec.DecodeError. None: `kind` is a KubeStruct.
        """
        for id_, document in self.documents(plural):
            known = self._decoded.get(id_)
            if known is None or known[0] is not document:
                known = self._decoded[id_] = document, self._read(id_, document, kind, read)
            if isinstance(known[1], kind):
                yield known[1]

    def _read(self, id_: str, document: object, kind: type[T], read: Callable[[object], T] | None) -> object:
        try:
            return object_from_json(document, cast("type[KubeStruct]", kind)) if read is None else read(document)
        except (InvalidInput, codec.DecodeError) as error:
            self._unreadable[f"customspec.{id_}"] = str(error)
            return None


class NewestReports(Generic[R]):
    """The newest report of each node, by its token.

    A report may come before the first event about its node, or after its deletion. Reports of nodes that do not exist
    are forgotten when there are too many.
    """

    def __init__(self) -> None:
        self._of_node: dict[str, R] = {}

    def put(self, token: str, report: R, state: ClusterState) -> None:
        if len(self._of_node) > len(state.of_kind(NodeSpecState)) + MOST_UNKNOWN_NODES:
            self.forget_gone(state)
        self._of_node[token] = report

    def forget_gone(self, state: ClusterState) -> None:
        nodes = state.of_kind(NodeSpecState)
        self._of_node = {token: report for token, report in self._of_node.items() if token in nodes}

    def forget(self, token: str) -> None:
        self._of_node.pop(token, None)

    @property
    def of_node(self) -> Mapping[str, R]:
        """Node token -> its report. It changes with the next report."""
        return self._of_node


def priority_classes(state: ClusterState) -> dict[str, int]:
    """Return name of a PriorityClass -> its value."""
    return {each.object.metadata.name: each.object.value for each in state.of_kind(PriorityClassState).values()}
