"""Explanation of a round of the descheduler: the usage of nodes, the chosen pods and the limits.

Writer: the leading descheduler.

The subject is `explanations.round.descheduler`. An explanation is not a fact. The evictions and jobs that a round
causes have facts of their own.

Source:
    descheduler spec, 4, 12
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class ClassifiedNodes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of one node pool, as a balance plugin such as LowNodeLoad classified them in one round.

    Attributes:
        plugin: Name of the plugin.
        pool: Name of the node pool; "" if the plugin has no pools.
        nodes: Number of nodes that the plugin compared.
        low: Resource -> low threshold in percent. A node below all of them is underused.
        high: Resource -> high threshold in percent. A node above any of them is overused.
        is_deviation: Whether thresholds are distances from the mean usage of the pool. False: they are absolute.
        by_requests: True: usage is the sum of the pods' requests. False: usage is measured.
        under: Names of underused nodes, which can take pods.
        over: Names of overused nodes.
        acted_on: Nodes of `over` from which pods may be evicted in this round.
    """

    plugin: str
    pool: str = ""
    nodes: int
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    is_deviation: bool = False
    by_requests: bool = False
    under: list[str] = []
    over: list[str] = []
    acted_on: list[str] = []


class RoundAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that a plugin of the descheduler chose for eviction in a round, and the result.

    Attributes:
        pod: The pod as "namespace/name".
        uid: Uid of the pod.
        node: Node of the pod; "" if it has none.
        plugin: Name of the plugin.
        reason: Why the plugin chose the pod.
        result: "success", "dry_run", or the reason why the eviction was refused.
    """

    pod: str
    uid: str
    node: str
    plugin: str
    reason: str
    result: str


class RoundLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit for evictions in the descheduler's configuration that a round reached.

    Attributes:
        name: Name of the limit, for example "maxNoOfPodsToEvictTotal".
        reached_by: Nodes, namespaces or workloads that are at the limit; empty for a limit of the whole cluster.
    """

    name: str
    reached_by: list[str] = []


@CATALOGUE.register(kind="round", stream="explanations")
class RoundEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler ended: its plugins have looked at all nodes and chosen pods to evict.

    If a round saw and decided the same as the round before, the event is published at most once per minute.

    Attributes:
        seconds: Duration of the decisions, in real seconds.
        nodes: Number of nodes in the cluster.
        is_dry_run: Whether the round only counted the pods that it would evict.
        classified: How plugins classified the nodes, by plugin and pool.
        attempts: Pods that plugins chose, at most 200.
        results: Result -> number of attempts.
        refused: Code of a filter's reason -> number of pods that the filter refused.
        limits: Limits of the configuration that the round reached.
        faults: Errors of plugins, and profiles that cannot be made, one sentence each.
    """

    seconds: float
    nodes: int
    is_dry_run: bool = False
    classified: list[ClassifiedNodes] = []
    attempts: list[RoundAttempt] = []
    results: dict[str, int] = {}
    refused: dict[str, int] = {}
    limits: list[RoundLimit] = []
    faults: list[str] = []
