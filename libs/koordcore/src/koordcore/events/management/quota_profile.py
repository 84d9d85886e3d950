"""The root quota that an ElasticQuotaProfile asks for. Aggregate: `quotaprofile.<ns=name>` of the profile.

Writer: manager. Whoever keeps the quota objects (the gateway, or the manager itself without one) makes it so.

Source:
    manager spec, 14
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The quota of the profile became another one.

    Attributes:
        quota_namespace: The ElasticQuota.
        quota_name: The ElasticQuota.
        labels: Ours; others on the object are kept.
        annotations: Ours; others on the object are kept.
        min: Resource lists as text.
        max: Resource lists as text.
        nodes: How many the profile selects; total, unschedulable: what they hold, after the ratio.
        fault: Why it could not be rendered; the rest is then as it was.
        profile_version: Position of the profile object.
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
