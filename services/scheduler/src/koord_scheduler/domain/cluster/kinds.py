"""Affinity and spread constraints: how they select other pods, and which properties of pods they read.

    Question    selects pods
    Term        one inter-pod affinity or anti-affinity term
    PodKind     namespace, labels, deletion and own terms; pods with equal values have the same object

Source: scheduler-core spec, 5.6 and 5.7
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
    """A selection of pods by namespace and labels, as a constraint makes it."""

    # Names of namespaces. If it is empty and `namespace_selector` is None, no pod is selected.
    namespaces: frozenset[str]
    # Selects further namespaces by their labels; without requirements it selects all.
    namespace_selector: Selector | None = None
    selector: Selector | None = None  # Selects pods by their labels; None selects no pod
    skips_terminating: bool = False  # Whether pods that are being deleted are not selected

    def covers(self, namespace: str, labels_of: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether pods in the namespace may be selected. `labels_of`: namespace -> its labels."""
        if namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and chosen.matches(labels_of.get(namespace) or {NAME_LABEL: namespace})

    def is_about(self, kind: "PodKind", labels_of: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the selection includes pods of this kind. `labels_of`: namespace -> its labels."""
        if self.selector is None or (self.skips_terminating and kind.terminating):
            return False
        return self.covers(kind.namespace, labels_of) and self.selector.matches(kind.labels)


@dataclass(frozen=True, slots=True)
class Term:
    """One inter-pod affinity or anti-affinity term: a node label (topology key), and the pods that it selects."""

    topology_key: str
    question: Question


@dataclass(frozen=True, slots=True)
class OwnTerms:
    affinity: tuple[Term, ...] = ()  # Required affinity
    anti_affinity: tuple[Term, ...] = ()  # Required anti-affinity
    preferred: tuple[tuple[Term, int], ...] = ()  # Preferred terms with weights, negative for anti-affinity

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferred)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class PodKind:
    """The properties of a pod that affinity and spread constraints read. Constraints treat pods of one kind equally."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool = False  # Whether it is being deleted
    terms: OwnTerms = OwnTerms()  # Its inter-pod affinity terms
    spread: tuple[TopologySpreadConstraint, ...] = ()  # Its own spread constraints as written
    owners: tuple[tuple[str, str], ...] = ()  # (kind, name) of the controllers that own it


def compiled(selector: LabelSelector | None) -> Selector | None:
    """In a form that is fast to match. None: it is absent or malformed, and matches no pod."""
    if selector is None:
        return None
    try:
        return compile_selector(selector)
    except InvalidInput:
        return None


def with_label_keys(
    selector: LabelSelector | None, labels: Mapping[str, str], match: Iterable[str], mismatch: Iterable[str] = ()
) -> LabelSelector | None:
    """Return a label selector that also requires, or excludes, the values that the pod itself has for some labels.
    None: `selector` is None. Keys that the pod does not have are skipped.

    Args:
        labels: Labels of the pod that has the constraint.
        match: Keys for which `key in (value)` is added.
        mismatch: Keys for which `key notin (value)` is added.
    """
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
    """With default namespace and label keys filled in from the pod. Source: scheduler-core spec, 5.7."""
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
