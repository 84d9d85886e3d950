"""Report violations of the rules about QoS class, priority and annotations, with the texts of the webhook.

`koordcore.protocol.pod_admission` finds the violations.

Source:
    manager spec, 10.1, 10.2
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_admission import Rule, validate_pod
from koordcore.protocol.pod_resources import pod_requests_nano
from koordcore.protocol.priority import priority_class_raw
from koordcore.protocol.qos import QosClass, qos_raw
from koordcore.values.quantity import Quantity

from koord_manager.domain.admission.request import Violation

_QOS: Final = f"labels.{keys.QOS_CLASS}"
_SUB_PRIORITY: Final = f"labels.{keys.SUB_PRIORITY}"
_REQUESTS: Final = "pod.spec.containers[*].resources.requests"
_IMMUTABLE: Final = "field is immutable"


Wording = Callable[[Pod], str]


class _Said(NamedTuple):
    rule: Wording
    field: str
    complaint: Wording


def _always(text: str) -> Wording:
    return lambda _: text


def _immutable_qos(pod: Pod) -> str:
    return f'Invalid value: "{qos_raw(pod) or ""}": {_IMMUTABLE}'


def _immutable_class(pod: Pod) -> str:
    return f'Invalid value: "{priority_class_raw(pod) or ""}": {_IMMUTABLE}'


def _immutable_sub_priority(pod: Pod) -> str:
    return f'Invalid value: "{pod.metadata.labels.get(keys.SUB_PRIORITY, "")}": {_IMMUTABLE}'


def _combination_rule(pod: Pod) -> str:
    return "be-priority" if qos_raw(pod) is QosClass.BE else "lsr-priority"


def _combination(pod: Pod) -> str:
    return (
        f"Forbidden: {keys.QOS_CLASS}={qos_raw(pod) or ''} and priorityClass={priority_class_raw(pod) or ''} "
        "cannot be used in combination"
    )


def _fraction(pod: Pod) -> str:
    asked = Quantity(pod_requests_nano(pod).get("cpu", 0))
    return f'Invalid value: "{asked}": the requested CPUs of LSR Pod must be integer'


_WORDINGS: Final[dict[Rule, _Said]] = {
    Rule.RESERVE_POD_ANNOTATION: _Said(
        _always("reserve-pod-annotation"),
        f"annotations.{keys.RESERVE_POD}",
        _always("Forbidden: cannot set in annotations"),
    ),
    Rule.IMMUTABLE_QOS: _Said(_always("qos-immutable"), _QOS, _immutable_qos),
    Rule.IMMUTABLE_PRIORITY_CLASS: _Said(_always("priority-class-immutable"), "spec.priority", _immutable_class),
    Rule.IMMUTABLE_SUB_PRIORITY: _Said(_always("priority-label-immutable"), _SUB_PRIORITY, _immutable_sub_priority),
    Rule.BATCH_REQUIRES_BE: _Said(
        _always("batch-needs-be"),
        _QOS,
        _always("Required value: must specify koordinator QoS BE with koordinator colocation resources"),
    ),
    Rule.FORBIDDEN_COMBINATION: _Said(_combination_rule, "Pod", _combination),
    Rule.CPU_REQUIRED: _Said(
        _always("lsr-cpu-required"), _REQUESTS, _always("Required value: LSR Pod must declare the requested CPUs")
    ),
    Rule.CPU_NOT_INTEGER: _Said(_always("lsr-cpu-integer"), _REQUESTS, _fraction),
}
"""In the order in which they are reported."""


def check_pod(pod: Pod, old: Pod | None, *, skip_validating_priority: bool) -> list[list[Violation]]:
    """Check QoS class, priority and annotations of a pod.

    Return two lists: violations of forbidden annotations, and the rest. Without a violation, return an empty list.

    Args:
        pod: The submitted pod.
        old: The stored pod on UPDATE; None on CREATE.
        skip_validating_priority: Whether the priority rules are skipped.

    Raises:
        InvalidInput: A requested quantity is invalid.

    Source:
        manager spec, 10.1, 10.2; vectors manager/pod_validate
    """
    broken = {found.rule for found in validate_pod(pod, old, skip_validating_priority=skip_validating_priority)}
    if not broken:
        return []
    forbidden: list[Violation] = []
    classes: list[Violation] = []
    for rule, wording in _WORDINGS.items():
        if rule in broken:
            message = f"{wording.field}: {wording.complaint(pod)}"
            group = forbidden if rule is Rule.RESERVE_POD_ANNOTATION else classes
            group.append(Violation(rule=wording.rule(pod), field=wording.field, message=message))
    return [forbidden, classes]
