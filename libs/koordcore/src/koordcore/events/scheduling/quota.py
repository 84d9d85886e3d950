"""Status of a quota. Writer: schedulers. Aggregate: `quota.<name>`.

Source:
    event-bus spec, 2.1; scheduler-core spec, 10.9
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="quota")
class QuotaStatusComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """What an ElasticQuota's status and annotations say, whenever it differs from what was said last.

    All amounts: cpu in milli-cores, everything else in whole units; entries of 0 are left out.

    Attributes:
        runtime: What it may use now.
        request: What its pods and its children ask, limited by max on the way up.
        child_request: The children's part of it.
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
