"""Webhook `/validate-pod`: check groups of rules, and return the violations of the first group with any.

Quota admission (manager spec, 10.4) changes the usage of the quota. So the caller runs it last, after all rules allow
the pod (`quotas.evaluation`).

Source:
    manager spec, 10
"""

from collections.abc import Callable

from koordcore.protocol.objects import Pod

from koord_manager.domain.admission.context.enhanced_rules import check_labels
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.context.quota import QuotaTree
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.pods.device_rules import check_devices
from koord_manager.domain.admission.pods.rules import check_pod
from koord_manager.domain.admission.quotas.quota_of_pod import check_quota
from koord_manager.domain.admission.request import Violation


def validate_pod(
    pod: Pod, old: Pod | None, namespace: str, facts: Facts, quotas: QuotaTree, options: Options
) -> list[Violation]:
    """Check the groups of rules for pods in order, and return all violations of the first group that the pod breaks.

    The result is empty if the pod breaks no rule.

    Args:
        pod: The submitted pod.
        old: The stored pod on UPDATE; None on CREATE.
        namespace: Namespace of the pod, or of the request if the pod has none.
        facts: Cluster state that admission reads.
        quotas: The quota tree, including accepted quotas that were not observed yet.
        options: Feature gates and flags.

    Raises:
        InvalidInput: A quantity is invalid.

    Source:
        manager spec, 10; vectors manager/pod_validate
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
