"""Rules for combining QoS class, priority and resources of a pod.

The webhook, and `koord apply` without Kubernetes, turn all violations into one refusal. The rules use the classes as
written, without fallbacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests_nano
from koordcore.protocol.priority import PriorityBand, priority_class_raw
from koordcore.protocol.qos import QosClass, qos_raw
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.values.quantity import NANO_PER_UNIT, Quantity


class Rule(StrEnum):
    """Names of the rules that `validate_pod` checks: three for updates, then five for pods."""

    IMMUTABLE_QOS = "immutable-qos"  # An update must not change the QoS class
    IMMUTABLE_PRIORITY_CLASS = "immutable-priority-class"  # An update must not change the priority class
    IMMUTABLE_SUB_PRIORITY = "immutable-sub-priority"  # An update must not change the priority inside the class
    BATCH_REQUIRES_BE = "batch-requires-be"  # A pod with batch resources has QoS class BE
    # The QoS class and the priority class of the pod may not be combined.
    FORBIDDEN_COMBINATION = "forbidden-combination"
    CPU_REQUIRED = "cpu-required"  # A pod of class LSE or LSR requests cpu
    CPU_NOT_INTEGER = "cpu-not-integer"  # A pod of class LSE or LSR requests whole CPUs
    RESERVE_POD_ANNOTATION = "reserve-pod-annotation"  # A pod must not claim to stand for a Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule of `validate_pod` that a pod violates."""

    rule: Rule  # Name of the rule
    field: str  # Path of the field
    message: str  # One sentence with the invalid value


_ALLOWED_BANDS: Final[dict[QosClass, frozenset[PriorityBand | None]]] = {
    QosClass.LSR: frozenset({PriorityBand.PROD}),
    QosClass.BE: frozenset({PriorityBand.MID, PriorityBand.BATCH, PriorityBand.FREE}),
}
_WHOLE_CORES: Final = frozenset({QosClass.LSR, QosClass.LSE})
_QOS_FIELD: Final = f"metadata.labels[{keys.QOS_CLASS}]"


def validate_pod(pod: Pod, old_pod: Pod | None = None, *, skip_validating_priority: bool = False) -> list[Violation]:
    """Check QoS class, priority and resources of a pod. Return every violated rule, sorted by name; empty if it is
    valid. `old_pod`: the stored pod before an update; None on create. `skip_validating_priority`: value of the gate
    ColocationProfileSkipValidatingPriority. If True, an update may change the label for the priority inside the class.

    Raises:
        InvalidInput: A request is not a valid quantity.

    Source: protocol spec, 2.3; vectors protocol/qos_priority_admission.
    """
    found: list[Violation] = []
    if old_pod is not None:
        found += _immutable_fields(pod, old_pod, skip_validating_priority=skip_validating_priority)
    written, band = qos_raw(pod), priority_class_raw(pod)
    allowed = _ALLOWED_BANDS.get(written) if written is not None else None
    if allowed is not None and band not in allowed:
        found.append(
            Violation(
                rule=Rule.FORBIDDEN_COMBINATION,
                field=_QOS_FIELD,
                message=f"QoS class {written} does not go with priority class {band or 'none'}",
            )
        )
    requests = pod_requests_nano(pod)
    found += _resource_rules(written, requests)
    if keys.RESERVE_POD in pod.metadata.annotations:
        found.append(
            Violation(
                rule=Rule.RESERVE_POD_ANNOTATION,
                field=f"metadata.annotations[{keys.RESERVE_POD}]",
                message="cannot be set: it marks the scheduler's own reserve pods",
            )
        )
    return sorted(found, key=lambda violation: violation.rule)


def _resource_rules(written: QosClass | None, requests: dict[str, int]) -> list[Violation]:
    found: list[Violation] = []
    batch = [name for name in (BATCH_CPU, BATCH_MEMORY) if requests.get(name)]
    if batch and written is not QosClass.BE:
        found.append(
            Violation(
                rule=Rule.BATCH_REQUIRES_BE,
                field=_QOS_FIELD,
                message=f"a pod that requests {' and '.join(batch)} must have QoS class BE, got {written or 'none'}",
            )
        )
    if written in _WHOLE_CORES:
        cpu = requests.get("cpu", 0)
        if cpu == 0:
            found.append(
                Violation(
                    rule=Rule.CPU_REQUIRED,
                    field="spec.containers[*].resources.requests[cpu]",
                    message=f"a pod of QoS class {written} must request cpu",
                )
            )
        elif cpu % NANO_PER_UNIT:
            found.append(
                Violation(
                    rule=Rule.CPU_NOT_INTEGER,
                    field="spec.containers[*].resources.requests[cpu]",
                    message=f"a pod of QoS class {written} must request whole cores, got {Quantity(cpu)}",
                )
            )
    return found


def _immutable_fields(pod: Pod, old_pod: Pod, *, skip_validating_priority: bool) -> list[Violation]:
    checks: list[tuple[Rule, str, str, str]] = [
        (Rule.IMMUTABLE_QOS, _QOS_FIELD, str(qos_raw(old_pod) or ""), str(qos_raw(pod) or "")),
        (
            Rule.IMMUTABLE_PRIORITY_CLASS,
            "spec.priority",
            str(priority_class_raw(old_pod) or ""),
            str(priority_class_raw(pod) or ""),
        ),
    ]
    if not skip_validating_priority:
        old_text = old_pod.metadata.labels.get(keys.SUB_PRIORITY, "")
        new_text = pod.metadata.labels.get(keys.SUB_PRIORITY, "")
        checks.append((Rule.IMMUTABLE_SUB_PRIORITY, f"metadata.labels[{keys.SUB_PRIORITY}]", old_text, new_text))
    return [
        Violation(rule=rule, field=field, message=f"cannot change from {old or 'none'!r} to {new or 'none'!r}")
        for rule, field, old, new in checks
        if old != new
    ]
