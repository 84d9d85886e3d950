"""Find the quota of a pod, and check the rules about it.

Source:
    manager spec, 10.3
"""

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod

from koord_manager.domain.admission.context.quota import Quota, QuotaTree
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import Violation


def quota_name_of(pod: Pod, namespace: str, quotas: QuotaTree, options: Options) -> str:
    """Return the name of the pod's quota, or "" if it has none.

    The first of these applies: the quota label of the pod; the quota in the pod's namespace that has the name of the
    namespace; a quota whose annotation contains the namespace; the default quota. With the gate DisableDefaultQuota
    only the label applies.

    Source:
        manager spec, 10.3 (2)
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
    """Return the pod's quota by the rules of `quota_name_of`, or None if no quota has that name."""
    name = quota_name_of(pod, namespace, quotas, options)
    return quotas.get(name) if name else None


def check_quota(pod: Pod, old: Pod | None, namespace: str, quotas: QuotaTree, options: Options) -> list[Violation]:
    """Return the violations of the rules about the quota that a pod uses, or an empty list.

    Args:
        pod: The submitted pod.
        old: The stored pod on UPDATE; None on CREATE.
        namespace: Namespace of the pod.
        quotas: The quota tree.
        options: Feature gates and flags.

    Source:
        manager spec, 10.3; vectors manager/pod_validate
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
