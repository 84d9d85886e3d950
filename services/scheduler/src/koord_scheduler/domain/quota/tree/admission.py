"""May a pod be placed as far as its quota goes?

Source:
    scheduler-core spec, 10.5; pitfalls 2, 3
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from koord_scheduler.domain.quota.specs.text import list_text


class Check(StrEnum):
    """Which check refused; NONE: none did."""

    NONE = ""
    QUOTA = "quota"
    NON_PREEMPTIBLE = "non-preemptible"
    PARENT = "parent"


class Admission(NamedTuple):
    """The answer.

    Attributes:
        quota: The quota that decided, "" when the pod has none.
        exceeded: Resources in which it is too much, sorted.
        message: "" when admitted.
    """

    admitted: bool
    quota: str
    check: Check = Check.NONE
    exceeded: tuple[str, ...] = ()
    message: str = ""


class QuotaAmounts(NamedTuple):
    """The amounts of a quota that admission compares.

    Attributes:
        limit: Its runtime, or max; a resource that it lacks is unlimited.
        max: What it counts at all.
    """

    name: str
    limit: Mapping[str, int]
    used: Mapping[str, int]
    min: Mapping[str, int]
    max: Mapping[str, int]
    non_preemptible_used: Mapping[str, int]


NO_QUOTA: Final = Admission(admitted=True, quota="")


def admit(
    requests: Mapping[str, int],
    own: QuotaAmounts,
    ancestors: Sequence[QuotaAmounts] = (),
    *,
    preemptible: bool = True,
) -> Admission:
    """Return whether a pod with these requests still fits its quota.

    1. used + request <= limit, over every resource that is used or requested, also those that the pod does not ask for
    2. a non-preemptible pod: non-preemptible used + request <= min
    3. each ancestor (nearest first; () unless enableCheckParentQuota): as 1, over the resources that the pod asks for
    A resource that a limit does not name is unlimited.
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
    """Return resources, sorted, in which used + request is more than the limit.

    One that neither names is not checked.
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
