"""Webhook `/validate-pod`: check groups of rules, and return the violations of the first group with any.

Quota admission (manager spec, 10.4) changes the usage of the quota. So the caller runs it last, after all rules allow
the pod (`quotas.evaluation`).

`koordcore.protocol.pod_admission` finds the violations about QoS class, priority and annotations.

`/validate-pod-binding` allows only some users to bind pods, so that two schedulers do not bind the same pods while one
replaces the other.

Source:
    manager spec, 10 (10.5 devices, 10.7 bindings); vectors manager/pod_validate
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol import resource_names as names
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_admission import Rule
from koordcore.protocol.pod_admission import validate_pod as broken_rules
from koordcore.protocol.pod_resources import pod_requests_nano
from koordcore.protocol.priority import priority_class_raw
from koordcore.protocol.qos import QosClass, qos_raw
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity
from koordcore.values.resources import parse_resources

from koord_manager.domain.admission.context.enhanced_rules import check_labels
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.context.quota import QuotaTree
from koord_manager.domain.admission.options import BindingPolicy, Options
from koord_manager.domain.admission.quotas.evaluation import check_quota
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

    Raises:
        InvalidInput: A requested quantity is invalid.

    Source: manager spec, 10.1, 10.2; vectors manager/pod_validate.
    """
    broken = {found.rule for found in broken_rules(pod, old, skip_validating_priority=skip_validating_priority)}
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


_SENTENCES: Final = {
    "gpu-and-share": f"{names.GPU} and {names.GPU_SHARED} cannot be requested together",
    "gpu-zero": f"the requested {names.GPU} must be greater than zero",
    "gpu-not-multiple-of-100": f"the requested {names.GPU} must be a percentage of one card or a multiple of 100",
    "share-zero": f"the requested {names.GPU_SHARED} must be greater than zero",
    "share-memory-missing": f"{names.GPU_SHARED} needs {names.GPU_MEMORY} or {names.GPU_MEMORY_RATIO}",
    "share-memory-twice": f"{names.GPU_MEMORY} and {names.GPU_MEMORY_RATIO} cannot be requested together",
    "share-core-not-multiple": f"the requested {names.GPU_CORE} must be a multiple of {names.GPU_SHARED}",
    "share-ratio-not-multiple": f"the requested {names.GPU_MEMORY_RATIO} must be a multiple of {names.GPU_SHARED}",
}


def check_devices(pod: Pod) -> list[Violation]:
    """Return all violations in the device requests of a pod, in the order of the rules.

    Raises:
        InvalidInput: A quantity is invalid.
    """
    found: list[Violation] = []
    for index, container in enumerate(pod.spec.containers):
        field = f"spec.containers[{index}].resources.requests"
        try:
            amounts = {name: held.value() for name, held in parse_resources(container.resources.requests).items()}
        except InvalidInput as error:
            raise error.at(field) from error
        found += [
            Violation(rule=rule, field=field, message=f"{field}: Invalid value: {_SENTENCES[rule]}")
            for rule in _broken(amounts)
        ]
    order = list(_SENTENCES)
    return sorted(found, key=lambda violation: order.index(violation.rule))


def _broken(amounts: dict[str, int]) -> list[str]:
    if names.GPU in amounts and names.GPU_SHARED in amounts:
        return ["gpu-and-share"]
    rules: list[str] = []
    if names.GPU in amounts:
        gpu = amounts[names.GPU]
        if gpu == 0:
            rules.append("gpu-zero")
        if gpu > 100 and gpu % 100:
            rules.append("gpu-not-multiple-of-100")
    if names.GPU_SHARED in amounts:
        rules += _broken_share(amounts)
    return rules


def _broken_share(amounts: dict[str, int]) -> list[str]:
    shared = amounts[names.GPU_SHARED]
    rules = ["share-zero"] if shared == 0 else []
    if amounts.get(names.HUAWEI_NPU_CORE):
        return rules
    memory, ratio = amounts.get(names.GPU_MEMORY, 0), amounts.get(names.GPU_MEMORY_RATIO, 0)
    if not memory and not ratio:
        rules.append("share-memory-missing")
    if memory and ratio:
        rules.append("share-memory-twice")
    if shared:
        if amounts.get(names.GPU_CORE, 0) % shared:
            rules.append("share-core-not-multiple")
        if ratio % shared:
            rules.append("share-ratio-not-multiple")
    return rules


def validate_pod(
    pod: Pod, old: Pod | None, namespace: str, facts: Facts, quotas: QuotaTree, options: Options
) -> list[Violation]:
    """Check the groups of rules for pods in order, and return all violations of the first group that the pod breaks.

    `namespace` is that of the pod, or of the request if the pod has none.

    Raises:
        InvalidInput: A quantity is invalid.
    """
    skip_priority = options.enabled("ColocationProfileSkipValidatingPriority")
    groups: tuple[Callable[[], list[Violation]], ...] = (
        lambda: check_quota(pod, old, namespace, quotas, options),
        lambda: check_devices(pod) if options.enabled("ValidatePodDeviceResource") else [],
        lambda: (
            check_labels(facts.enhanced_rules, namespace, pod.metadata.labels)
            if options.enabled("EnablePodEnhancedValidator")
            else []
        ),
    )
    for found in check_pod(pod, old, skip_validating_priority=skip_priority):
        if found:
            return found
    for group in groups:
        broken = group()
        if broken:
            return broken
    return []


@dataclass(frozen=True, slots=True)
class BoundPod:
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BindingDecision:
    allowed: bool
    decision: str  # Name of the rule that decided, such as `excluded_ns`; a label of the metric

    @property
    def message(self) -> str:
        """Sentence for the user, or empty if the binding is allowed."""
        return "" if self.allowed else "binding denied: username is not in the allowed list"


def validate_binding(policy: BindingPolicy, user: str, namespace: str, pod: BoundPod | None) -> BindingDecision:
    """Return the decision of the first rule about users who bind pods that applies.

    A pod of None could not be read; then the binding is allowed.
    """
    if not policy.user_names or any(name in user for name in policy.user_names):
        return BindingDecision(True, "allowed_username")
    if namespace in policy.exclude_namespaces:
        return BindingDecision(True, "excluded_ns")
    if "*" not in policy.namespaces and namespace not in policy.namespaces:
        return BindingDecision(True, "out_of_scope")
    if pod is None:
        return BindingDecision(True, "pod_unreadable")
    if any(key in pod.labels for key in policy.bypass_labels):
        return BindingDecision(True, "bypass_label")
    if any(key in pod.annotations for key in policy.bypass_annotations):
        return BindingDecision(True, "bypass_annotation")
    if policy.dry_run:
        return BindingDecision(True, "dry_run")
    return BindingDecision(False, "denied")
