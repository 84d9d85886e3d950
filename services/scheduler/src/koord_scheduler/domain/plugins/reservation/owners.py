"""Owner rules: which pods may use a Reservation, by `spec.owners`. Reservations with equal owner rules form a group.
Each owner rule is indexed by a label, a controller or a pod name that it requires. Only rules that require none of
these are compared with every pod.

Source: scheduler-fine-grained spec, 3.4
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from koordcore.protocol.objects import OwnerReference, Pod
from koordcore.protocol.reservations import OwnerController, OwnerObject, ReservationOwnerRule
from koordcore.protocol.selectors import Operator, Selector, compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """One entry of `spec.owners` of a Reservation. A pod must match all of its parts that are present. A rule without
    parts matches every pod.
    """

    object: OwnerObject | None  # Name, uid and namespace of a pod; None if absent
    controller: OwnerController | None  # Owner reference that a pod must have; None if absent
    selector: Selector | None  # Label selector; None if absent

    def matches(self, pod: Pod) -> bool:
        return (
            (self.object is None or _is_object(self.object, pod))
            and (self.controller is None or _is_controlled(self.controller, pod))
            and (self.selector is None or self.selector.matches(pod.metadata.labels))
        )


@dataclass(frozen=True, slots=True)
class Owners:
    """The owner rules of a Reservation, in a form that is fast to match with pods."""

    key: bytes  # Equal for Reservations with equal rules
    reads_names: bool  # Whether a rule names a pod by name or uid
    rules: tuple[OwnerRule, ...]  # The rules. A pod must match one of them.

    def match(self, pod: Pod) -> bool:
        return any(rule.matches(pod) for rule in self.rules)


def compile_owners(rules: Sequence[ReservationOwnerRule]) -> Owners | None:
    """Return the owner rules in a form that is fast to match; None if a selector is invalid, so that no pod matches.
    Without rules, the result matches no pod either.
    """
    return _compiled(codec.encode_canonical(list(rules)))


@lru_cache(maxsize=4096)
def _compiled(key: bytes) -> Owners | None:
    """Compile owner rules that were encoded. Most Reservations have the rules of others."""
    rules = codec.decode(key, list[ReservationOwnerRule])
    try:
        compiled = tuple(
            OwnerRule(
                rule.object,
                rule.controller,
                None if rule.label_selector is None else compile_selector(rule.label_selector),
            )
            for rule in rules
        )
    except InvalidInput:
        return None
    reads_names = any(rule.object is not None and (rule.object.name or rule.object.uid) for rule in rules)
    return Owners(key, bool(reads_names), compiled)


def _is_object(wanted: OwnerObject, pod: Pod) -> bool:
    meta = pod.metadata
    return (
        wanted.uid in ("", meta.uid)
        and wanted.name in ("", meta.name)
        and wanted.namespace in ("", meta.namespace)
        and wanted.api_version in ("", "v1")
    )


def _is_controlled(wanted: OwnerController, pod: Pod) -> bool:
    if wanted.namespace not in ("", pod.metadata.namespace):
        return False
    return any(_is_owner(wanted, owner) for owner in pod.metadata.owner_references)


def _is_owner(wanted: OwnerController, owner: OwnerReference) -> bool:
    return (
        wanted.uid in ("", owner.uid)
        and wanted.name in ("", owner.name)
        and wanted.kind in ("", owner.kind)
        and wanted.api_version in ("", owner.api_version)
        and wanted.controller in (None, owner.controller)
    )


Key = tuple[str, ...]


@dataclass(slots=True, eq=False)
class Group:
    """The Reservations with equal owner rules. They are thus for the same pods."""

    id: int  # Number of the group
    owners: Owners  # The owner rules
    members: set[str] = field(default_factory=set[str])  # Uids of the Reservations


class OwnerIndex:
    """Finds the groups of Reservations for a pod by label, controller or name, instead of matching every group."""

    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        self._by_owners: dict[bytes, Group] = {}
        self._found_by: dict[Key, dict[int, Group]] = {}
        self._next = 1
        self._named = 0

    def add(self, owners: Owners, uid: str) -> tuple[Group, bool]:
        """Add a Reservation with its owner rules. Return its group, and whether the group is new."""
        group = self._by_owners.get(owners.key)
        is_new = group is None
        if group is None:
            group = self._by_owners[owners.key] = self.groups[self._next] = Group(self._next, owners)
            self._next += 1
            self._named += owners.reads_names
            for key in _keys_of(owners):
                self._found_by.setdefault(key, {})[group.id] = group
        group.members.add(uid)
        return group, is_new

    def remove(self, group: Group, uid: str) -> None:
        """Remove a Reservation from its group. A group without Reservations is removed."""
        group.members.discard(uid)
        if group.members:
            return
        del self.groups[group.id], self._by_owners[group.owners.key]
        self._named -= group.owners.reads_names
        for key in set(_keys_of(group.owners)):  # two rules may have the same key
            groups = self._found_by[key]
            del groups[group.id]
            if not groups:
                del self._found_by[key]

    def of(self, pod: Pod) -> tuple[int, ...]:
        """Return the ids of the groups whose owner rules match the pod, ascending."""
        if not self._by_owners:
            return ()
        meta = pod.metadata
        asked: list[Key] = [()]
        if self._named:
            asked += [("uid", meta.uid), ("name", meta.name)]
        if meta.labels:
            asked += [("label", key, value) for key, value in meta.labels.items()]
        for owner in meta.owner_references:
            asked += [("owner uid", owner.uid), ("owner", owner.name)]
        found: dict[int, Group] = {}
        for key in asked:
            groups = self._found_by.get(key)
            if groups is not None:
                found.update(groups)
        if not found:
            return ()
        return tuple(sorted([id_ for id_, group in found.items() if group.owners.match(pod)]))

    def named(self, pod: Pod) -> tuple[int, ...]:
        """Return the ids of the groups with an owner rule for the name or the uid of this pod, ascending; usually none.
        Other parts of these rules are not compared.
        """
        if not self._named:
            return ()
        by_uid, by_name = self._found_by.get(("uid", pod.metadata.uid)), self._found_by.get(("name", pod.metadata.name))
        return tuple(sorted({**(by_uid or {}), **(by_name or {})}))


def _keys_of(owners: Owners) -> Iterator[Key]:
    """Yield keys of which each pod that the owners match has one; the empty key is found for every pod."""
    for rule in owners.rules:
        wanted, controller = rule.object, rule.controller
        if wanted is not None and wanted.uid:
            yield ("uid", wanted.uid)
        elif wanted is not None and wanted.name:
            yield ("name", wanted.name)
        elif controller is not None and controller.uid:
            yield ("owner uid", controller.uid)
        elif controller is not None and controller.name:
            yield ("owner", controller.name)
        else:
            requirements = rule.selector.requirements if rule.selector is not None else ()
            chosen = next((each for each in requirements if each.operator is Operator.IN), None)
            if chosen is None:
                yield ()
            else:
                yield from (("label", chosen.key, value) for value in chosen.values)
