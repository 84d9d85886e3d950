"""Status of a quota: the amounts that its pods use and may use. Writer: schedulers. Aggregate: `quota.<name>`.

The root quota that an ElasticQuotaProfile defines. Aggregate: `quotaprofile.<ns=name>` of the profile.

Writer: manager. The gateway, or the manager itself without a gateway, then changes the quota object.

Source:
    event-bus spec, 2.1; scheduler-core spec, 10.9; manager spec, 14
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


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The root quota that follows from an ElasticQuotaProfile changed, or can no longer be computed.

    Attributes:
        quota_namespace: Namespace of the ElasticQuota.
        quota_name: Name of the ElasticQuota.
        labels: Labels to set; other labels of the object are kept.
        annotations: Annotations to set; other annotations of the object are kept.
        min: Field `min` of the ElasticQuota as a resource list.
        max: Field `max` of the ElasticQuota as a resource list.
        total: Resources of all selected nodes, multiplied by the ratio of the profile.
        unschedulable: Part of `total` on unschedulable nodes.
        nodes: Number of nodes that the profile selects.
        fault: Reason why the quota could not be computed; "" for none. With a fault, the other fields have the values
            of the last computation without a fault.
        profile_version: Sequence of the event with the profile object.
    """

    quota_namespace: str
    quota_name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    total: dict[str, str] = {}
    unschedulable: dict[str, str] = {}
    nodes: int = 0
    fault: str = ""
    profile_version: int = 0


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileDropped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The ElasticQuotaProfile was deleted, so its computed root quota is dropped. The ElasticQuota object stays."""
