"""Quotas: amounts that pods use and may use (`quota.<name>`, by schedulers), and root quotas of ElasticQuotaProfiles.

The latter are in `quotaprofile.<ns=name>` of the profile. Writer: manager. The gateway, or the manager itself without a
gateway, then changes the quota object.

Source: event-bus spec, 2.1; scheduler-core spec, 10.9; manager spec, 14.
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quota")
class QuotaStatusComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler computed a new status for an ElasticQuota.

    Each field is a map from resource to amount: milli-cores for cpu and whole units for everything else. An absent
    resource is 0.
    """

    name: str
    namespace: str = ""
    used: dict[str, int] = {}  # Requests of the placed pods of the quota and its children
    runtime: dict[str, int] = {}  # Amounts that the quota may use now
    request: dict[str, int] = {}  # Requests of all pods of the quota and its children, limited by max at each level
    child_request: dict[str, int] = {}  # Part of `request` that comes from its children
    non_preemptible_used: dict[str, int] = {}  # Part of `used` by pods that preemption must not evict
    non_preemptible_request: dict[str, int] = {}  # Part of `request` by pods that preemption must not evict
    allocated: dict[str, int] = {}  # Usage of its own pods plus the `guaranteed` amounts of its children
    guaranteed: dict[str, int] = {}  # The larger of `allocated` and the quota's min


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The root quota that follows from an ElasticQuotaProfile changed, or can no longer be computed."""

    quota_namespace: str  # Namespace of the ElasticQuota
    quota_name: str  # Name of the ElasticQuota
    labels: dict[str, str] = {}  # Labels to set; other labels of the object are kept
    annotations: dict[str, str] = {}  # Annotations to set; other annotations of the object are kept
    min: dict[str, str] = {}  # Field `min` of the ElasticQuota as a resource list
    max: dict[str, str] = {}  # Field `max` of the ElasticQuota as a resource list
    total: dict[str, str] = {}  # Resources of all selected nodes, multiplied by the ratio of the profile
    unschedulable: dict[str, str] = {}  # Part of `total` on unschedulable nodes
    nodes: int = 0  # Number of nodes that the profile selects
    # Reason why the quota could not be computed; "" for none. With a fault, the other fields have the values of the
    # last computation without a fault.
    fault: str = ""
    profile_version: int = 0  # Sequence of the event with the profile object


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileDropped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The ElasticQuotaProfile was deleted, so its computed root quota is dropped. The ElasticQuota object stays."""
