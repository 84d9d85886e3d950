"""Validation rules of the Kubernetes API for the parts of a pod that say where it may run, and for taints.

Source: reality spec, 1.7; Kubernetes, validateAffinity, ValidateTolerations, validateTopologySpreadConstraints.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.protocol import objects as kube
from koordcore.protocol.manifests.names import Violations, is_key, is_label, is_label_value, is_subdomain
from koordcore.protocol.selectors import compile_selector
from koordcore.values.invalid import InvalidInput

_TAINT_EFFECTS: Final = {"NoSchedule", "PreferNoSchedule", "NoExecute"}
_NODE_SELECTOR_OPERATORS: Final = {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}
_POLICIES: Final = ("Honor", "Ignore")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def check_placement(spec: kube.PodSpec, path: str, labels: Mapping[str, str]) -> Violations:
    """Yield every violation in what a pod with these labels says about nodes and other pods. `path`: path of the
    spec.
    """
    if spec.affinity is not None:
        where = f"{path}.affinity"
        if spec.affinity.node_affinity is not None:
            yield from _node_affinity(spec.affinity.node_affinity, f"{where}.nodeAffinity")
        if spec.affinity.pod_affinity is not None:
            yield from _pod_affinity(spec.affinity.pod_affinity, f"{where}.podAffinity", labels)
        if spec.affinity.pod_anti_affinity is not None:
            yield from _pod_affinity(spec.affinity.pod_anti_affinity, f"{where}.podAntiAffinity", labels)
    yield from _tolerations(spec.tolerations, f"{path}.tolerations")
    yield from _spread(spec.topology_spread_constraints, f"{path}.topologySpreadConstraints", labels)
    yield from _gates(spec, path)


def check_taints(taints: Sequence[kube.Taint], path: str) -> Violations:
    """Yield every violation of the rules for taints of a node or of a Reservation. `path`: path of the list in the
    document.
    """
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        if not is_key(taint.key):
            yield InvalidInput("a label key", taint.key, f"{where}.key")
        if not is_label_value(taint.value):
            yield InvalidInput("a label value", taint.value, f"{where}.value")
        if taint.effect not in _TAINT_EFFECTS:
            yield InvalidInput(f"one of {', '.join(sorted(_TAINT_EFFECTS))}", taint.effect, f"{where}.effect")
        if (taint.key, taint.effect) in seen:
            yield InvalidInput("unique by key and effect", f"{taint.key}:{taint.effect}", where)
        seen.add((taint.key, taint.effect))


def _node_requirement(requirement: kube.LabelSelectorRequirement, path: str, *, is_required: bool) -> Violations:
    if not is_key(requirement.key):
        yield InvalidInput("a label key", requirement.key, f"{path}.key")
    operator, values = requirement.operator, requirement.values
    if operator not in _NODE_SELECTOR_OPERATORS:
        yield InvalidInput(f"one of {', '.join(sorted(_NODE_SELECTOR_OPERATORS))}", operator, f"{path}.operator")
    elif operator in ("In", "NotIn") and not values:
        yield InvalidInput(f"not empty for {operator}", values, f"{path}.values")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield InvalidInput(f"empty for {operator}", values, f"{path}.values")
    elif operator in ("Gt", "Lt") and not (len(values) == 1 and re.fullmatch(r"-?\d{1,18}", values[0])):
        yield InvalidInput(f"one integer for {operator}", values, f"{path}.values")
    elif is_required:
        for index, value in enumerate(values):
            if not is_label_value(value):
                yield InvalidInput("a label value", value, f"{path}.values[{index}]")


def _node_term(term: kube.NodeSelectorTerm, path: str, *, is_required: bool) -> Violations:
    for index, requirement in enumerate(term.match_expressions):
        yield from _node_requirement(requirement, f"{path}.matchExpressions[{index}]", is_required=is_required)
    for index, requirement in enumerate(term.match_fields):
        where = f"{path}.matchFields[{index}]"
        if requirement.key != "metadata.name":
            yield InvalidInput("metadata.name", requirement.key, f"{where}.key")
        if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
            yield InvalidInput("In or NotIn with exactly one value", requirement.values, f"{where}.values")
        elif not is_subdomain(requirement.values[0]):
            yield InvalidInput("a node name", requirement.values[0], f"{where}.values[0]")


def _node_affinity(affinity: kube.NodeAffinity, path: str) -> Violations:
    if affinity.required is not None:
        terms_path = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not affinity.required.node_selector_terms:
            yield InvalidInput("at least one term", [], terms_path)
        for index, term in enumerate(affinity.required.node_selector_terms):
            yield from _node_term(term, f"{terms_path}[{index}]", is_required=True)
    for index, preferred in enumerate(affinity.preferred):
        item = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(preferred.weight, item)
        yield from _node_term(preferred.preference, f"{item}.preference", is_required=False)


def _weight(weight: int, path: str) -> Violations:
    if not 1 <= weight <= 100:
        yield InvalidInput("1..100", weight, f"{path}.weight")


def _pod_affinity(affinity: kube.PodAffinity, path: str, labels: Mapping[str, str]) -> Violations:
    for index, term in enumerate(affinity.required):
        yield from _pod_term(term, f"{path}.{_REQUIRED}[{index}]", labels)
    for index, weighted in enumerate(affinity.preferred):
        item = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight(weighted.weight, item)
        yield from _pod_term(weighted.pod_affinity_term, f"{item}.podAffinityTerm", labels)


def _pod_term(term: kube.PodAffinityTerm, path: str, labels: Mapping[str, str]) -> Violations:
    yield from _selector(term.label_selector, f"{path}.labelSelector")
    yield from _selector(term.namespace_selector, f"{path}.namespaceSelector")
    for index, namespace in enumerate(term.namespaces):
        if not is_label(namespace):
            yield InvalidInput("a DNS label of at most 63 characters", namespace, f"{path}.namespaces[{index}]")
    yield from _topology_key(term.topology_key, path)
    match, mismatch = term.match_label_keys, term.mismatch_label_keys
    yield from _label_keys(match, term.label_selector, f"{path}.matchLabelKeys")
    yield from _label_keys(mismatch, term.label_selector, f"{path}.mismatchLabelKeys")
    yield from _selected_twice(match, mismatch, term.label_selector, f"{path}.matchLabelKeys", labels)
    mismatched = set(term.mismatch_label_keys)
    both = [key for key in term.match_label_keys if key in mismatched]
    if both:
        yield InvalidInput("without the keys of mismatchLabelKeys", both, f"{path}.matchLabelKeys")


def _selector(selector: kube.LabelSelector | None, path: str) -> Violations:
    if selector is None:
        return
    try:
        compile_selector(selector)
    except InvalidInput as error:
        yield error.at(path)


def _topology_key(key: str, path: str) -> Violations:
    if not is_key(key):
        yield InvalidInput("a label key", key, f"{path}.topologyKey")


def _label_keys(keys: Sequence[str], selector: kube.LabelSelector | None, path: str) -> Violations:
    """Yield what is wrong with label keys whose values are taken from the pod itself."""
    if not keys:
        return
    if selector is None:
        yield InvalidInput("absent without labelSelector", list(keys), path)
    for index, key in enumerate(keys):
        if not is_key(key):
            yield InvalidInput("a label key", key, f"{path}[{index}]")


def _selected_twice(
    match: Sequence[str],
    mismatch: Sequence[str],
    selector: kube.LabelSelector | None,
    path: str,
    labels: Mapping[str, str],
) -> Violations:
    """Yield keys of matchLabelKeys that the selector names, too. An API server adds an expression to the selector for
    each key that the pod has as a label, before it compares: a key without such a label may be named once.
    """
    if selector is None:
        return
    named, matched = set(selector.match_labels), set(match)
    added = [key for key in (*match, *mismatch) if key in labels]
    twice: list[str] = []
    for key in (*(each.key for each in selector.match_expressions), *added):
        if key in matched and key in named:
            twice.append(key)
        named.add(key)
    if twice:
        yield InvalidInput("without the keys of labelSelector", twice, path)


def _tolerations(tolerations: Sequence[kube.Toleration], path: str) -> Violations:
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        if toleration.key and not is_key(toleration.key):
            yield InvalidInput("a label key", toleration.key, f"{where}.key")
        if toleration.operator not in ("Equal", "Exists"):
            yield InvalidInput("Equal or Exists", toleration.operator, f"{where}.operator")
        elif not toleration.key and toleration.operator != "Exists":
            yield InvalidInput("Exists when the key is empty", toleration.operator, f"{where}.operator")
        elif toleration.operator == "Exists" and toleration.value:
            yield InvalidInput("empty when the operator is Exists", toleration.value, f"{where}.value")
        elif not is_label_value(toleration.value):
            yield InvalidInput("a label value", toleration.value, f"{where}.value")
        if toleration.effect and toleration.effect not in _TAINT_EFFECTS:
            yield InvalidInput(f"one of {', '.join(sorted(_TAINT_EFFECTS))}", toleration.effect, f"{where}.effect")
        elif toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield InvalidInput("NoExecute when tolerationSeconds is set", toleration.effect, f"{where}.effect")


def _spread(constraints: Sequence[kube.TopologySpreadConstraint], path: str, labels: Mapping[str, str]) -> Violations:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        if constraint.max_skew < 1:
            yield InvalidInput("1 or more", constraint.max_skew, f"{where}.maxSkew")
        yield from _topology_key(constraint.topology_key, where)
        action = constraint.when_unsatisfiable
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            yield InvalidInput("DoNotSchedule or ScheduleAnyway", action, f"{where}.whenUnsatisfiable")
        kind = (constraint.topology_key, action)
        if kind in seen:
            yield InvalidInput("unique by topologyKey and whenUnsatisfiable", ", ".join(kind), where)
        seen.add(kind)
        least = constraint.min_domains
        if least is not None and least < 1:
            yield InvalidInput("1 or more, or absent", least, f"{where}.minDomains")
        if least is not None and action != "DoNotSchedule":
            yield InvalidInput("absent unless whenUnsatisfiable is DoNotSchedule", least, f"{where}.minDomains")
        policies = (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        )
        for name, policy in policies:
            if policy is not None and policy not in _POLICIES:
                yield InvalidInput("Honor or Ignore", policy, f"{where}.{name}")
        yield from _selector(constraint.label_selector, f"{where}.labelSelector")
        keys, selector = constraint.match_label_keys, constraint.label_selector
        yield from _label_keys(keys, selector, f"{where}.matchLabelKeys")
        yield from _selected_twice(keys, (), selector, f"{where}.matchLabelKeys", labels)


def _gates(spec: kube.PodSpec, path: str) -> Violations:
    seen: set[str] = set()
    for index, gate in enumerate(spec.scheduling_gates):
        where = f"{path}.schedulingGates[{index}].name"
        if not is_key(gate.name):
            yield InvalidInput("a qualified name (optional DNS prefix / name)", gate.name, where)
        elif gate.name in seen:
            yield InvalidInput("unique among the gates", gate.name, where)
        seen.add(gate.name)
    if seen and spec.node_name:
        yield InvalidInput("absent until all schedulingGates have been removed", spec.node_name, f"{path}.nodeName")
