"""Webhook `/validate-pod-binding`: allow only some users to bind pods.

This prevents that two schedulers bind the same pods while one replaces the other.

Source:
    manager spec, 10.7
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koord_manager.domain.admission.options import BindingPolicy


@dataclass(frozen=True, slots=True)
class BoundPod:
    """Labels and annotations of the pod that a binding request names."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BindingDecision:
    """Result of the check whether a user may bind a pod.

    Attributes:
        allowed: Whether the binding is allowed.
        decision: Name of the rule that decided, such as `excluded_ns`; a label of the metric.
    """

    allowed: bool
    decision: str

    @property
    def message(self) -> str:
        """Sentence for the user, or empty if the binding is allowed."""
        return "" if self.allowed else "binding denied: username is not in the allowed list"


def validate_binding(policy: BindingPolicy, user: str, namespace: str, pod: BoundPod | None) -> BindingDecision:
    """Apply the rules about users who bind pods in order, and return the decision of the first rule that applies.

    Args:
        policy: Rules about the users who may bind pods.
        user: User of the request.
        namespace: Namespace of the pod.
        pod: The pod, or None if it could not be read; then the binding is allowed.

    Source:
        manager spec, 10.7
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
