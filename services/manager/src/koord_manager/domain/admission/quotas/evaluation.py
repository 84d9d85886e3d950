"""Quota admission: does a pod still fit into its quota? One batch of requests of one quota at a time.

source    manager spec, 10.4
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from koord_manager.domain.admission.quotas.quota_of_pod import quota_name_of

COUNTED: Final = frozenset(
    (
        *("cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
        *(BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, GPU, NVIDIA_GPU, GPU_SHARED, GPU_MEMORY_RATIO),
    )
)
"""A quota is accounted for only when its max names at least one of these."""
_TERMINATED: Final = frozenset(("Succeeded", "Failed"))


@dataclass(frozen=True, slots=True)
class QuotaAnswer:
    """What became of one request: the resources that it exceeded, and the sentence about it."""

    exceeded: tuple[str, ...] = ()
    message: str = ""

    @property
    def allowed(self) -> bool:
        """Whether it fits."""
        return not self.exceeded


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One batch: an answer for each request, what is used after it, and whether that is to be written."""

    answers: tuple[QuotaAnswer, ...]
    used: ResourceList
    written: bool


def quota_to_evaluate(pod: Pod, old: Pod | None, namespace: str, quotas: QuotaTree, options: Options) -> str | None:
    """Name of the quota that has to have room for the pod; None when no evaluation is due.

    old       the stored pod on UPDATE, None on CREATE
    source    manager spec, 10.4 (first paragraph)
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
    """What a pod asks of its quota; nothing when it has ended.

    With the gates ElasticQuotaEvaluationTransformPod and ReplaceResourcesTransformer the annotation replace-resources
    is applied first.
    raises    InvalidInput for a malformed quantity
    """
    if pod.status.phase in _TERMINATED:
        return {}
    if options.enabled("ElasticQuotaEvaluationTransformPod") and options.enabled("ReplaceResourcesTransformer"):
        written = pod.metadata.annotations.get(keys.REPLACE_RESOURCES)
        if written:
            pod = replace_pod_resources(pod, parse_replace_resources(written))
    return {name: Quantity(nano) for name, nano in pod_requests_nano(pod).items()}


def evaluate_quota(quota: Quota, requests: Sequence[ResourceList]) -> Evaluation:
    """Requests in order of arrival against one quota.

    raises    InvalidInput when an annotation of the quota cannot be read
    source    manager spec, 10.4
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
    """The batch as values.

    names     spec.max: the resources that count
    used      what is used before the batch
    limit     what may be used
    shown     `<ns>/<name>` for messages
    source    manager spec, 10.4 (1) to (4); vectors manager/quota_evaluate
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
    """The annotation `child-request`."""
    return codec.encode_canonical(format_resources(used)).decode()
