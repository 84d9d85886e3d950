"""Owner rules: which pods may use a Reservation, by `spec.owners`.

Source: scheduler-fine-grained spec, 3.4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from koordcore.protocol.objects import OwnerReference, Pod
from koordcore.protocol.reservations import OwnerController, OwnerObject, ReservationOwnerRule
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """One entry of `spec.owners` of a Reservation. A pod must match all of its parts that are present.

    A rule without parts matches every pod.

    Attributes:
        object: Name, uid and namespace of a pod; None if absent.
        controller: Owner reference that a pod must have; None if absent.
        selector: Label selector; None if absent.
    """

    object: OwnerObject | None
    controller: OwnerController | None
    selector: Selector | None

    def matches(self, pod: Pod) -> bool:
        """Return whether all present parts of the rule match the pod."""
        return (
            (self.object is None or _is_object(self.object, pod))
            and (self.controller is None or _is_controlled(self.controller, pod))
            and (self.selector is None or self.selector.matches(pod.metadata.labels))
        )


@dataclass(frozen=True, slots=True)
class Owners:
    """The owner rules of a Reservation, in a form that is fast to match with pods.

    Attributes:
        key: Equal for Reservations with equal rules.
        reads_names: Whether a rule names a pod by name or uid.
        rules: The rules. A pod must match one of them.
    """

    key: bytes
    reads_names: bool
    rules: tuple[OwnerRule, ...]

    def match(self, pod: Pod) -> bool:
        """Return whether any of the owner rules matches the pod."""
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
