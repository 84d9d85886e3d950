"""The root quota that an ElasticQuotaProfile defines. Aggregate: `quotaprofile.<ns=name>` of the profile.

Writer: manager. The gateway, or the manager itself without a gateway, then changes the quota object.

Source:
    manager spec, 14
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The root quota of the profile changed.

    Attributes:
        quota_namespace: Namespace of the ElasticQuota.
        quota_name: Name of the ElasticQuota.
        labels: Labels to set; other labels of the object are kept.
        annotations: Annotations to set; other annotations of the object are kept.
        min: Field `min` as a resource list.
        max: Field `max` as a resource list.
        nodes: Number of nodes that the profile selects. `total` and `unschedulable` are their resources after the
            ratio.
        fault: Reason why it could not be rendered. The other fields are then unchanged.
        profile_version: Sequence of the profile object.
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
