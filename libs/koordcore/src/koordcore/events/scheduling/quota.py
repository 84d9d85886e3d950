"""Status of a quota. Writer: schedulers. Aggregate: `quota.<name>`.

Source:
    event-bus spec, 2.1; scheduler-core spec, 10.9
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quota")
class QuotaStatusComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The status of an ElasticQuota changed.

    Amounts are milli-cores for cpu and whole units for everything else. Entries of 0 are left out.

    Attributes:
        runtime: Amounts that the quota may use now.
        request: Requests of its pods and children, limited by max at each level.
        child_request: Part of `request` that comes from its children.
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
