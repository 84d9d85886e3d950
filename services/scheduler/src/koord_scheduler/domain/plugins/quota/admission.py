"""Admission of a pod by its quota: whether the quota has room for it, and amounts as text for the answer.

Source: scheduler-core spec, 10.5; pitfalls 2, 3
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from koordcore.protocol.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
from koordcore.values.quantity import Notation, of_milli, of_value

_EMPTY: Final = "<empty>"


def quantity_text(resource: str, amount: int) -> str:
    """Return an amount as Kubernetes quantity: `1500m` for cpu (in milli-cores), `8Gi` for bytes, else decimal."""
    if resource == CPU:
        return of_milli(amount).canonical()
    is_bytes = resource == EPHEMERAL_STORAGE or resource.endswith(MEMORY) or resource.startswith("hugepages-")
    return of_value(amount, Notation.BINARY if is_bytes else Notation.DECIMAL).canonical()


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return resource -> amount as Kubernetes quantity (`quantity_text`), sorted by resource."""
    return {name: quantity_text(name, amounts[name]) for name in sorted(amounts)}


def list_text(amounts: Mapping[str, int]) -> str:
    """Return amounts as in `cpu:4,memory:8Gi`, sorted by resource; `<empty>` if there are none."""
    return ",".join(f"{name}:{text}" for name, text in quantities(amounts).items()) or _EMPTY


def without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that are not zero, sorted by resource, so that equal sums are equal values."""
    return {name: amounts[name] for name in sorted(amounts) if amounts[name]}


class Check(StrEnum):
    """The check of `admit` that refused a pod: QUOTA, NON_PREEMPTIBLE or PARENT. QUOTA is its quota, NON_PREEMPTIBLE
    the min of its quota, PARENT an ancestor.
    """

    NONE = ""
    QUOTA = "quota"
    NON_PREEMPTIBLE = "non-preemptible"
    PARENT = "parent"


class Admission(NamedTuple):
    """Result of the check whether a quota admits a pod."""

    admitted: bool  # Whether the pod is admitted
    quota: str  # Name of the quota that decided; "" if the pod has no quota
    check: Check = Check.NONE  # The check that refused the pod; meaningless if the pod is admitted
    exceeded: tuple[str, ...] = ()  # Sorted resources of which the pod would exceed the limit
    message: str = ""  # Reason for the user; "" if the pod is admitted


class QuotaAmounts(NamedTuple):
    """The amounts of a quota that admission compares: milli-cores for cpu, whole units otherwise."""

    name: str
    limit: Mapping[str, int]  # Runtime or max of the quota. Resources that are absent are unlimited.
    used: Mapping[str, int]  # Requests of its pods that have a node
    min: Mapping[str, int]  # The guaranteed amounts
    max: Mapping[str, int]  # Upper limits of the quota. Only resources in max are counted.
    non_preemptible_used: Mapping[str, int]  # Requests of its non-preemptible pods that have a node


NO_QUOTA: Final = Admission(admitted=True, quota="")


def admit(
    requests: Mapping[str, int],
    own: QuotaAmounts,
    ancestors: Sequence[QuotaAmounts] = (),
    *,
    preemptible: bool = True,
) -> Admission:
    """Return whether a pod with these requests fits its quota.

    Three checks run in this order:

        1. used + request <= limit, for every resource that is used or requested, also if the pod does not request it
        2. for a non-preemptible pod: non-preemptible used + request <= min
        3. for each ancestor: used + request <= limit, for the resources that the pod requests

    Resources that a limit does not name are unlimited.

    Args:
        requests: Requests of the pod: milli-cores for cpu, whole units otherwise.
        ancestors: Amounts of the ancestors, nearest first. Empty unless the argument `enableCheckParentQuota` is set.
        preemptible: Whether the pod may be evicted.
    """
    request = {name: amount for name, amount in requests.items() if name in own.max}
    exceeded = exceeding(own.used, request, own.limit)
    if exceeded:
        message = _message(f"quotaName: {own.name}", own.limit, own.used, request, exceeded)
        return Admission(False, own.name, Check.QUOTA, exceeded, message)
    if not preemptible:
        exceeded = exceeding(own.non_preemptible_used, request, own.min)
        if exceeded:
            message = (
                f"Insufficient non-preemptible quotas, quotaName: {own.name}, min: {list_text(own.min)}, "
                f"nonPreemptibleUsed: {list_text(own.non_preemptible_used)}, "
                f"pod's request: {list_text(request)}, exceedDimensions: [{' '.join(exceeded)}]"
            )
            return Admission(False, own.name, Check.NON_PREEMPTIBLE, exceeded, message)
    for index, ancestor in enumerate(ancestors):
        limit = {name: ancestor.limit[name] for name in request if name in ancestor.limit}
        exceeded = exceeding(ancestor.used, request, limit)
        if exceeded:
            topology = " ".join([*(above.name for above in reversed(ancestors[: index + 1])), own.name])
            message = _message(f"quotaNameTopo: [{topology}]", ancestor.limit, ancestor.used, request, exceeded)
            return Admission(False, ancestor.name, Check.PARENT, exceeded, message)
    return Admission(True, own.name)


def exceeding(used: Mapping[str, int], request: Mapping[str, int], limit: Mapping[str, int]) -> tuple[str, ...]:
    """Return the sorted resources of which `used` plus `request` is more than `limit`. Resources that neither `used`
    nor `request` names, or that `limit` does not name, are not compared.
    """
    over = [
        name
        for name, most in limit.items()
        if used.get(name, 0) + request.get(name, 0) > most and (name in used or name in request)
    ]
    return tuple(sorted(over)) if over else ()


def _message(
    where: str,
    limit: Mapping[str, int],
    used: Mapping[str, int],
    request: Mapping[str, int],
    exceeded: tuple[str, ...],
) -> str:
    return (
        f"Insufficient quotas, {where}, runtime: {list_text(limit)}, used: {list_text(used)}, "
        f"pod's request: {list_text(request)}, exceedDimensions: [{' '.join(exceeded)}]"
    )
