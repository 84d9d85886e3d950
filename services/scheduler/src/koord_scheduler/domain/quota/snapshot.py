"""The facts behind all sums, as plain values: what a restored manager is filled from."""

import msgspec

from koord_scheduler.domain.quota.objects import QuotaSpec
from koord_scheduler.domain.quota.pods import PodFacts


class SavedPod(msgspec.Struct, frozen=True, array_like=True):
    """A pod, whether it counts in used, whether it counts no more because it is being deleted."""

    facts: PodFacts
    assigned: bool
    ignored: bool


class QuotaSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the sums and runtimes follow from, in a canonical order.

    nodes         allocatable of each node
    over_since    since when quotas have been over their runtime
    """

    quotas: list[QuotaSpec]
    nodes: dict[str, dict[str, int]]
    pods: list[SavedPod]
    over_since: dict[str, float]
