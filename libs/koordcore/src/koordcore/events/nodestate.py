"""What the agent of a node did. Aggregate: `nodestate.<name>`. Writer: that node's agent.

source    event-bus spec, 2.1; agent spec, 11 and 19
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="nodestate")
class AgentStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of the node started and took over enforcement.

    host      "linux" or "simulated"
    version   version of the agent
    """

    host: str
    version: str


@CATALOGUE.register(kind="nodestate")
class PodsStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods placed on the node are running there (or their cgroups have been adopted).

    pods    uids
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class PodsStopped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods are no longer running on the node.

    pods    uids
    """

    pods: list[str]


@CATALOGUE.register(kind="nodestate")
class BeCpuSuppressed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The cfs quota of the best-effort class was changed (agent spec, 11.5).

    old_quota_us, new_quota_us  per 100 ms period; -1 = unlimited
    terms                       the budget's formula in milli-cores: capacity, threshold_percent, pod_non_be_used,
                                host_non_be_used, system_used, budget
    reason                      one sentence for the operator
    """

    old_quota_us: int
    new_quota_us: int
    terms: dict[str, int]
    reason: str


@CATALOGUE.register(kind="nodestate")
class BeCpuReleased(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The suppression was lifted: strategy disabled or switched.

    old_quota_us    the quota that was in force
    """

    old_quota_us: int
    reason: str
