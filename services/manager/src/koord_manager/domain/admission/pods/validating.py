"""Webhook `/validate-pod`: groups of rules; the first group that is broken ends it with all its violations.

Quota admission (manager spec, 10.4) stands between the quota rules and the devices; it counts, so it is asked last and
by the door (`quota_evaluation`), once nothing else refuses the pod.

source    manager spec, 10
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
    """All violations of the first broken group; empty when the pod may be stored.

    old         the stored pod on UPDATE, None on CREATE
    namespace   of the pod, else of the request
    raises      InvalidInput for a malformed quantity
    source      manager spec, 10; vectors manager/pod_validate
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
