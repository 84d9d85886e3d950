"""Rules of the Kubernetes API for changes of a stored pod's spec; each violation has field, rule and value.

A user may change images, add tolerations, and remove scheduling gates. As long as a pod is gated, what it demands of
nodes may become stricter.

Source: reality spec, 1.5; Kubernetes, ValidatePodUpdate; KEP-3521, KEP-3838.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from koordcore.protocol import objects as kube
from koordcore.protocol.manifests.reader import InvalidManifest
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput, joined

Violations = Iterator[InvalidInput]

_TERMS = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def check_update(new: kube.PodSpec, old: kube.PodSpec) -> None:
    """Check a change of the spec of a stored pod.

    Raises:
        InvalidManifest: The API does not allow the change. The error has every violation.
    """
    violations = list(_violations(new, old))
    if violations:
        raise InvalidManifest(violations)


def _violations(new: kube.PodSpec, old: kube.PodSpec) -> Violations:
    yield from _gates(new.scheduling_gates, old.scheduling_gates)
    yield from _tolerations(new.tolerations, old.tolerations)
    new = msgspec.structs.replace(
        new,
        scheduling_gates=old.scheduling_gates,
        tolerations=old.tolerations,
        containers=_with_images(new.containers, old.containers),
        init_containers=_with_images(new.init_containers, old.init_containers),
    )
    if (old.termination_grace_period_seconds or 0) < 0 and new.termination_grace_period_seconds == 1:
        new.termination_grace_period_seconds = old.termination_grace_period_seconds
    if old.scheduling_gates:
        yield from _stricter_selector(new, old)
        yield from _stricter_affinity(new, old)
        new = msgspec.structs.replace(new, node_selector=old.node_selector, affinity=_with_node_affinity(new, old))
    for field in msgspec.structs.fields(kube.PodSpec):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            yield from _differences(codec.to_builtins(before), codec.to_builtins(after), f"spec.{field.encode_name}")


def _differences(before: object, after: object, path: str) -> Violations:
    """Yield each value that differs. Items of a list that have names are compared by name."""
    for entries_of, named in ((_as_map, False), (_by_name, True)):
        if (old := entries_of(before)) is not None and (new := entries_of(after)) is not None:
            yield from _entries(old, new, path, named=named)
            return
    if before != after:
        yield InvalidInput(f"unchanged ({_value_text(before)}); delete the pod to change it", _text_of(after), path)


def _entries(before: dict[str, object], after: dict[str, object], path: str, *, named: bool) -> Violations:
    for key in dict.fromkeys([*before, *after]):
        place = f"{path}[{key}]" if named else joined(path, (key,))
        yield from _differences(before.get(key), after.get(key), place)


def _as_map(value: object) -> dict[str, object] | None:
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _by_name(value: object) -> dict[str, object] | None:
    """Name -> item of a list whose items all have names of their own; else None."""
    if not isinstance(value, list):
        return None
    items = [cast("dict[str, object]", item) for item in cast("list[object]", value) if isinstance(item, dict)]
    found: dict[str, object] = {str(item["name"]): item for item in items if "name" in item}
    return found if len(found) == len(cast("list[object]", value)) else None


def _value_text(value: object) -> str:
    return "absent" if value is None else repr(value) if isinstance(value, str) else codec.encode(value).decode()


def _text_of(value: object) -> object:
    return "nothing" if value is None else value


def _with_images(new: Sequence[kube.Container], old: Sequence[kube.Container]) -> list[kube.Container]:
    """Return the new containers with the old images, as far as there are as many."""
    if len(new) != len(old):
        return list(new)
    return [msgspec.structs.replace(after, image=before.image) for after, before in zip(new, old, strict=True)]


def _gates(new: Sequence[kube.SchedulingGate], old: Sequence[kube.SchedulingGate]) -> Violations:
    present = dict.fromkeys(gate.name for gate in old)
    added = [gate.name for gate in new if gate.name not in present]
    if added:
        rule = f"some of the present ones ({list(present)!r}): gates can be removed, not added"
        yield InvalidInput(rule, added, "spec.schedulingGates")


def _tolerations(new: Sequence[kube.Toleration], old: Sequence[kube.Toleration]) -> Violations:
    kept = set(map(_untimed, new))
    if any(_untimed(each) not in kept for each in old):
        rule = "a superset of the present ones, of which only tolerationSeconds may change"
        yield InvalidInput(rule, codec.to_builtins(new), "spec.tolerations")


def _untimed(toleration: kube.Toleration) -> tuple[str, str, str, str]:
    return toleration.key, toleration.operator, toleration.value, toleration.effect


def _stricter_selector(new: kube.PodSpec, old: kube.PodSpec) -> Violations:
    if any(new.node_selector.get(key) != value for key, value in old.node_selector.items()):
        rule = f"the present labels ({old.node_selector!r}) and others: it can become stricter while the pod is gated"
        yield InvalidInput(rule, new.node_selector, "spec.nodeSelector")


def _stricter_affinity(new: kube.PodSpec, old: kube.PodSpec) -> Violations:
    """Yield changes that make the required node affinity of a gated pod less strict. Preferences may change at will."""
    before, after = _required(old), _required(new)
    if before is None or before == after:
        return
    path = f"spec.affinity.nodeAffinity.{_TERMS}"
    if after is None or len(after.node_selector_terms) != len(before.node_selector_terms):
        number = len(before.node_selector_terms)
        rule = f"as many terms as before ({number}): an added term would make a gated pod less strict"
        yield InvalidInput(rule, 0 if after is None else len(after.node_selector_terms), path)
        return
    terms = zip(after.node_selector_terms, before.node_selector_terms, strict=True)
    for index, (term, earlier) in enumerate(terms):
        if not _has_only_additions(term, earlier):
            rule = f"what it was ({codec.to_builtins(earlier)!r}), and more after it: a gated pod can become stricter"
            yield InvalidInput(rule, codec.to_builtins(term), f"{path}[{index}]")


def _has_only_additions(new: kube.NodeSelectorTerm, old: kube.NodeSelectorTerm) -> bool:
    if not old.match_expressions and not old.match_fields:
        return new == old  # it matches no node, so that any condition would make it less strict
    expressions = new.match_expressions[: len(old.match_expressions)]
    return expressions == old.match_expressions and new.match_fields[: len(old.match_fields)] == old.match_fields


def _required(spec: kube.PodSpec) -> kube.NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required if affinity else None


def _with_node_affinity(new: kube.PodSpec, old: kube.PodSpec) -> kube.Affinity | None:
    """Return the new affinity with the old node affinity; None and an empty affinity are the same here."""
    changed = msgspec.structs.replace(
        new.affinity or kube.Affinity(), node_affinity=old.affinity.node_affinity if old.affinity else None
    )
    return old.affinity if changed == (old.affinity or kube.Affinity()) else changed
