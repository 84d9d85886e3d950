"""What a round of the descheduler saw and decided. Writer: the leading descheduler.

The subject is `explanations.round.descheduler`. An explanation is not a fact. What a round changes has facts of its
own.

Source:
    descheduler spec, 4, 12
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class ClassifiedNodes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a plugin classified the nodes of one pool.

    Attributes:
        plugin: Name of the plugin.
        pool: Name of the node pool; "" if the plugin has no pools.
        nodes: Number of nodes that it compared.
        low: Resource -> low threshold in percent.
        high: Resource -> high threshold in percent.
        is_deviation: Whether thresholds are distances from the mean usage of the pool.
        by_requests: Whether usage is the sum of requests. False: it is measured.
        under: Nodes that can take pods.
        over: Nodes that use too much.
        acted_on: Nodes of `over` from which pods may leave in this round.
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
    """A pod that a plugin chose.

    Attributes:
        pod: The pod as "namespace/name".
        uid: Its uid.
        node: Its node; "" if it has none.
        plugin: Name of the plugin.
        reason: Why it was chosen.
        result: "success", or why it was refused.
    """

    pod: str
    uid: str
    node: str
    plugin: str
    reason: str
    result: str


class RoundLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit of the configuration that was reached.

    Attributes:
        name: Name of the limit.
        reached_by: Nodes, namespaces or workloads that are at the limit; empty if it holds for the whole cluster.
    """

    name: str
    reached_by: list[str] = []


@CATALOGUE.register(kind="round", stream="explanations")
class RoundEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler ended.

    Rounds that saw and decided the same as the round before are published once per minute.

    Attributes:
        seconds: Duration of the decisions, in seconds of the host.
        nodes: Number of nodes in the cluster.
        is_dry_run: Whether pods are only counted.
        classified: How plugins classified nodes.
        attempts: Pods that plugins chose, at most 200.
        results: Result -> number of attempts.
        refused: Code of a filter -> number of pods that it refused.
        limits: Limits that are reached.
        faults: Errors of plugins, one sentence each.
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
