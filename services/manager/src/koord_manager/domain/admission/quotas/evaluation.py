"""Quota admission: decide whether pods fit into their quota, for a batch of requests to one quota.

Source:
    manager spec, 10.3 (the quota of a pod), 10.4; vectors manager/pod_validate, manager/quota_evaluate
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests_nano
from koordcore.protocol.resource_names import (
    BATCH_CPU,
    BATCH_MEMORY,
    GPU,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    MID_CPU,
    MID_MEMORY,
    NVIDIA_GPU,
    parse_replace_resources,
    replace_pod_resources,
)
from koordcore.values import codec
from koordcore.values.quantity import ZERO, Quantity
from koordcore.values.resources import ResourceList, add, format_resources

from koord_manager.domain.admission.context.quota import RESERVED_NAMES, Quota, QuotaTree, resources_of
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import Violation


def quota_name_of(pod: Pod, namespace: str, quotas: QuotaTree, options: Options) -> str:
    """Return the name of the pod's quota, or "" if it has none.

    The first of these applies: the quota label of the pod; the quota in the pod's namespace that has the name of the
    namespace; a quota whose annotation contains the namespace; the default quota. With the gate DisableDefaultQuota
    only the label applies (manager spec, 10.3 (2)).
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
    """Return the violations of the rules about the quota that a pod uses. `old`: None on CREATE."""
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


COUNTED: Final = frozenset(
    (
        *("cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
        *(BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, GPU, NVIDIA_GPU, GPU_SHARED, GPU_MEMORY_RATIO),
    )
)
"""The usage of a quota is counted only if its max names at least one of these."""
_TERMINATED: Final = frozenset(("Succeeded", "Failed"))


@dataclass(frozen=True, slots=True)
class QuotaAnswer:
    # Names of the resources that the pod would exceed, in order of name; empty if it fits.
    exceeded: tuple[str, ...] = ()
    message: str = ""  # Sentence with the requested, used and limiting amounts, or empty if the pod fits

    @property
    def allowed(self) -> bool:
        return not self.exceeded


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of quota admission for a batch of pods that use one quota."""

    answers: tuple[QuotaAnswer, ...]  # One result for each pod, in the order of the requests
    used: ResourceList  # Usage of the quota after the batch; pods that do not fit are not counted
    written: bool  # Whether the usage changed, so that the caller has to write it to the quota


def quota_to_evaluate(pod: Pod, old: Pod | None, namespace: str, quotas: QuotaTree, options: Options) -> str | None:
    """Return the name of the quota whose usage has to include a pod, or None if quota admission does not apply.

    It does not apply if its gate is off, if the pod has no quota or a built-in one, and on an UPDATE that keeps the
    quota.
    """
    if not options.enabled("EnableQuotaAdmission"):
        return None
    name = quota_name_of(pod, namespace, quotas, options)
    if not name or name in RESERVED_NAMES:
        return None
    if old is not None:
        if not options.enabled("EnableQuotaAdmissionOnUpdate"):
            return None
        if quota_name_of(old, namespace, quotas, options) == name:
            return None
    return name


def evaluated_request(pod: Pod, options: Options) -> ResourceList:
    """Return the amounts that a pod adds to the usage of its quota; an empty mapping if the pod has ended.

    If the gates ElasticQuotaEvaluationTransformPod and ReplaceResourcesTransformer are on, the annotation
    replace-resources is applied to the pod first. With the gate ElasticQuotaIgnorePodOverhead, its overhead is left
    out.

    Raises:
        InvalidInput: A quantity or the annotation is invalid.
    """
    if pod.status.phase in _TERMINATED:
        return {}
    if options.enabled("ElasticQuotaEvaluationTransformPod") and options.enabled("ReplaceResourcesTransformer"):
        written = pod.metadata.annotations.get(keys.REPLACE_RESOURCES)
        if written:
            pod = replace_pod_resources(pod, parse_replace_resources(written))
    if pod.spec.overhead and options.enabled("ElasticQuotaIgnorePodOverhead"):
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, overhead={}))
    return {name: Quantity(nano) for name, nano in pod_requests_nano(pod).items()}


def evaluate_quota(quota: Quota, requests: Sequence[ResourceList]) -> Evaluation:
    """Decide for several pods, in order of arrival, whether they fit into one quota.

    The usage before the batch is the quota's annotation `child-request`. The limit is its annotation `admission`, or
    spec.max without the annotation.

    Raises:
        InvalidInput: An annotation of the quota is not a valid resource list.

    Source: manager spec, 10.4.
    """
    used = resources_of(quota.annotations, keys.QUOTA_CHILD_REQUEST)
    limit = resources_of(quota.annotations, keys.QUOTA_ADMISSION) or quota.max
    return evaluate(quota.max, used, limit, requests, shown=f"{quota.namespace}/{quota.name}")


def evaluate(
    names: Mapping[str, Quantity],
    used: ResourceList,
    limit: Mapping[str, Quantity],
    requests: Sequence[ResourceList],
    *,
    shown: str,
) -> Evaluation:
    """Decide for several pods, in order of arrival, whether they fit into a quota whose usage and limit are given.

    A pod that fits adds to the usage that the next pod is compared with. If `names` has none of the resources in
    `COUNTED`, every pod fits and nothing is counted. A resource without a limit is not limited.

    Args:
        names: spec.max of the quota. Only resources that it names are counted.
        shown: `<ns>/<name>` of the quota for messages.

    Source: manager spec, 10.4 (1) to (4); vectors manager/quota_evaluate.
    """
    if not COUNTED & names.keys():
        return Evaluation(tuple(QuotaAnswer() for _ in requests), dict(used), written=False)
    answers: list[QuotaAnswer] = []
    before = used
    for request in requests:
        counted = {name: amount for name, amount in request.items() if name in names and amount != ZERO}
        wanted = add(used, counted)
        exceeded = tuple(sorted(name for name in counted if name in limit and wanted[name] > limit[name]))
        if exceeded:
            answers.append(QuotaAnswer(exceeded, _sentence(shown, exceeded, counted, used, limit)))
            continue
        answers.append(QuotaAnswer())
        if counted:
            used = wanted
    return Evaluation(tuple(answers), used, written=used != before)


def _sentence(
    shown: str,
    exceeded: tuple[str, ...],
    requested: ResourceList,
    used: Mapping[str, Quantity],
    limit: Mapping[str, Quantity],
) -> str:
    def listed(amounts: Mapping[str, Quantity]) -> str:
        return ",".join(f"{name}={amounts.get(name, ZERO)}" for name in exceeded)

    return f"exceeded quota: {shown}, requested: {listed(requested)}, used: {listed(used)}, limited: {listed(limit)}"


def child_request_text(used: ResourceList) -> str:
    """Return the usage of a quota as JSON text for its annotation `child-request`."""
    return codec.encode_canonical(format_resources(used)).decode()
