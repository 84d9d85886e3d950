"""Status of a quota: the amounts that its pods use and may use. Writer: schedulers. Aggregate: `quota.<name>`.

Source:
    event-bus spec, 2.1; scheduler-core spec, 10.9
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quota")
class QuotaStatusComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler computed a new status for an ElasticQuota.

    Each field is a map from resource to amount: milli-cores for cpu and whole units for everything else. An absent
    resource is 0.

    Attributes:
        used: Requests of the placed pods of the quota and its children.
        runtime: Amounts that the quota may use now.
        request: Requests of all pods of the quota and its children, limited by max at each level.
        child_request: Part of `request` that comes from its children.
        non_preemptible_used: Part of `used` by pods that preemption must not evict.
        non_preemptible_request: Part of `request` by pods that preemption must not evict.
        allocated: Usage of its own pods plus the `guaranteed` amounts of its children.
        guaranteed: The larger of `allocated` and the quota's min.
    """

    name: str
    namespace: str = ""
    used: dict[str, int] = {}
    runtime: dict[str, int] = {}
    request: dict[str, int] = {}
    child_request: dict[str, int] = {}
    non_preemptible_used: dict[str, int] = {}
    non_preemptible_request: dict[str, int] = {}
    allocated: dict[str, int] = {}
    guaranteed: dict[str, int] = {}
