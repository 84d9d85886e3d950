"""What the constraints of pods ask of other pods, and what they read of them.

    Question    which pods are meant
    Term        one inter-pod affinity or anti-affinity term
    PodKind     namespace, labels, being deleted, its own terms; interned: two pods of one kind are the same to all

Source:
    scheduler-core spec, 5.6 and 5.7
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.invalid import InvalidInput

NAME_LABEL: Final = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Question:
    """Which pods are meant: those in the namespaces whose labels match.

    Attributes:
        namespaces: Names; empty with `namespace_selector` None: no pod.
        namespace_selector: Also every namespace whose labels match; without requirements: all namespaces.
        selector: None matches nothing.
        skips_terminating: Pods that are being deleted do not count.
    """

    namespaces: frozenset[str]
    namespace_selector: Selector | None = None
    selector: Selector | None = None
    skips_terminating: bool = False

    def covers(self, namespace: str, labels_of: Mapping[str, Mapping[str, str]]) -> bool:
        """Is the namespace meant? labels_of: namespace -> its labels."""
        if namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and chosen.matches(labels_of.get(namespace) or {NAME_LABEL: namespace})

    def is_about(self, kind: "PodKind", labels_of: Mapping[str, Mapping[str, str]]) -> bool:
        """Is a pod of this kind meant?"""
        if self.selector is None or (self.skips_terminating and kind.terminating):
            return False
        return self.covers(kind.namespace, labels_of) and self.selector.matches(kind.labels)


@dataclass(frozen=True, slots=True)
class Term:
    """One inter-pod affinity or anti-affinity term, resolved for its owner."""

    topology_key: str
    question: Question


@dataclass(frozen=True, slots=True)
class OwnTerms:
    """The inter-pod terms of a pod. preferred: with weights, negative for anti-affinity."""

    affinity: tuple[Term, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class PodKind:
    """What affinity and spread constraints read of a pod; two pods of one kind are the same to them.

    Attributes:
        spread: Its own constraints as written.
        owners: (kind, name) of the controllers that own it.
    """

    namespace: str
    labels: Mapping[str, str]
    terminating: bool = False
    terms: OwnTerms = OwnTerms()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()


def compiled(selector: LabelSelector | None) -> Selector | None:
    """Return the selector ready to match; None, or one whose syntax is bad (admission refuses it): matches nothing."""
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except InvalidInput:
        return None


def with_label_keys(
    selector: LabelSelector | None, labels: Mapping[str, str], match: Iterable[str], mismatch: Iterable[str] = ()
) -> LabelSelector | None:
    """Return the selector with the owner's values of some labels added: `key in (value)` and `key notin (value)`."""
    added = [
        LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for operator, keys in (("In", match), ("NotIn", mismatch))
        for key in keys
        if key in labels
    ]
    if selector is None or not added:
        return selector
    return LabelSelector(match_labels=selector.match_labels, match_expressions=[*selector.match_expressions, *added])


def resolved_term(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> Term:
    """Return the term of a pod in this namespace with these labels.

    Source: scheduler-core spec, 5.7
    """
    selector = with_label_keys(term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys)
    own = not term.namespaces and term.namespace_selector is None
    return Term(
        topology_key=term.topology_key,
        question=Question(
            namespaces=frozenset([namespace] if own else term.namespaces),
            namespace_selector=compiled(term.namespace_selector),
            selector=compiled(selector),
        ),
    )
