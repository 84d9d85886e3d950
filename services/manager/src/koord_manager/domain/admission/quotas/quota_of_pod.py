"""Which quota a pod belongs to, and the rules about it.

source    manager spec, 10.3
"""

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod

from koord_manager.domain.admission.context.quota import Quota, QuotaTree
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import Violation


def quota_name_of(pod: Pod, namespace: str, quotas: QuotaTree, options: Options) -> str:
    """Name of the pod's quota, "" for none.

    The label; with gate DisableDefaultQuota nothing else; else the quota named like the namespace in it, the one whose
    annotation names the namespace, the default quota.
    source    manager spec, 10.3 (2)
    """
    written = pod.metadata.labels.get(keys.QUOTA_NAME)
    if written or options.enabled("DisableDefaultQuota"):
        return written or ""
    own = quotas.get(namespace)
    if own is not None and own.namespace == namespace:
        return own.name
    bound = quotas.of_namespace(namespace)
    return bound.name if bound is not None else keys.DEFAULT_QUOTA


def quota_of_pod(pod: Pod, namespace: str, quotas: QuotaTree, options: Options) -> Quota | None:
    """The pod's quota; None when no quota has that name: it counts as the default quota then."""
    name = quota_name_of(pod, namespace, quotas, options)
    return quotas.get(name) if name else None


def check_quota(pod: Pod, old: Pod | None, namespace: str, quotas: QuotaTree, options: Options) -> list[Violation]:
    """Violations of the quota rules.

    old       the stored pod on UPDATE, None on CREATE
    source    manager spec, 10.3; vectors manager/pod_validate
    """
    found: list[Violation] = []
    if old is not None:
        before, after = (each.metadata.labels.get(keys.QUOTA_PREEMPTIBLE, "") for each in (old, pod))
        if before != after:
            field = f"labels.{keys.QUOTA_PREEMPTIBLE}"
            message = f'{field}: Invalid value: "{after}": field is immutable'
            found.append(Violation(rule="preemptible-immutable", field=field, message=message))
    if not options.enabled("SupportParentQuotaSubmitPod"):
        quota = quota_of_pod(pod, namespace, quotas, options)
        if quota is not None and quota.name != keys.DEFAULT_QUOTA and quota.is_parent:
            field = f"labels.{keys.QUOTA_NAME}"
            message = f'{field}: Invalid value: "{quota.name}": pods cannot be submitted to a parent quota'
            found.append(Violation(rule="parent-quota-pod", field=field, message=message))
    return found
