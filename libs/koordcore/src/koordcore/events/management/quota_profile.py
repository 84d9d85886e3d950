"""The root quota that an ElasticQuotaProfile asks for. Aggregate: `quotaprofile.<ns=name>` of the profile.

Writer: manager. Whoever keeps the quota objects (the gateway, or the manager itself without one) makes it so.

source    manager spec, 14
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quotaprofile")
class QuotaProfileRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The quota of the profile became another one.

    quota_namespace, quota_name   the ElasticQuota
    labels, annotations           ours; others on the object are kept
    min, max                      resource lists as text
    nodes                         how many the profile selects; total, unschedulable: what they hold, after the ratio
    fault                         why it could not be rendered; the rest is then as it was
    profile_version               position of the profile object
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
