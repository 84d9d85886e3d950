"""Decisions and explanations of the descheduler's rounds, and its configuration. Writer: the leading descheduler.

Aggregates: `descheduling.rounds`, `descheduling.costs` for deletion costs of pods, `descheduling.dry-runs` for pods
that would leave without dry run, `descheduling.refusals` for pods that stay, and `descheduler.default`.

    RoundDecided ─► RoundMovesAdded ... ─► RoundCarriedOut
    DeletionCostsDecided ─► DeletionCostsCarriedOut ─► DeletionCostsDecided ...

The decision is stored before its effects. If the leader is killed in between, the next one carries them out and
continues in the same state. A round that chooses no pod and changes no detector has no fact. Each round has the
explanation `RoundEnded` (`explanations.round.descheduler`), which is not a fact.

Source: descheduler spec, 4, 8.6, 12, 14.
"""

from typing import Any, Final, TypeAlias

import msgspec

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE


class Number(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number on which a decision rests, and the limit with which it was compared."""

    value: int | float  # The number, such as a count, a usage in percent, or tokens that are left
    limit: int | float | None = None  # The limit, threshold or other bound; None if there is none, or if it is invalid


Inputs: TypeAlias = dict[str, Number]  # Code of a limit, or name of a measure -> its number


def plan_inputs(*, gpus: int, moves: int, fragment_before: float, fragment_after: float) -> Inputs:
    """Return the numbers of a plan that moves pods for a waiting gang.

    Args:
        gpus: Number of whole GPUs that the gang needs.
        fragment_before: GPU milli that typical pods cannot use before the plan.
        fragment_after: The same after it.
    """
    return {
        "fragment_gpu_milli": Number(value=round(fragment_after, 3), limit=round(fragment_before, 3)),
        "gpus": Number(value=gpus),
        "moves": Number(value=moves),
    }


ROUNDS: Final = AggregateRef("descheduling", "rounds")
COSTS: Final = AggregateRef("descheduling", "costs")
DRY_RUNS: Final = AggregateRef("descheduling", "dry-runs")
REFUSALS: Final = AggregateRef("descheduling", "refusals")
MOST_COSTS: Final = 200  # Largest number of pods in one fact about deletion costs


class DetectorState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of an anomaly detector of LowNodeLoad, which says whether a node was hot in many rounds in a row."""

    is_anomalous: bool = False  # Whether pods may be evicted from the node because it is hot
    abnormal: int = 0  # Number of rounds in a row in which the node was hot, while the detector is not anomalous
    normal: int = 0  # Number of normal observations in a row
    since: str = ""  # RFC 3339 time at which the detector became anomalous; "" if it is not anomalous
    last_abnormal: str = ""  # RFC 3339 time of the last round in which the node was hot; "" for none


class DetectorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes whose anomaly detectors are in the same state."""

    usage: str  # Usage that the detectors compare with thresholds: "node", or "prod" (that of prod pods)
    nodes: list[str]  # Names of the nodes
    # The state of each of these detectors. None: the detectors were reset, or forgotten after a time.
    state: DetectorState | None


class RoundMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that has to leave its node because of a round."""

    namespace: str  # Namespace of the pod
    name: str  # Name of the pod
    uid: str  # Uid of the pod
    node: str  # Node of the pod
    profile: str  # Profile of the configuration that chose the pod
    plugin: str  # Plugin that chose the pod
    reason: str  # Why the plugin chose it
    job: str = ""  # Name of the PodMigrationJob by which the pod leaves; "" if the pod is evicted directly
    plan: str = ""  # Id of the plan that moves it together with other pods; "" if it moves alone
    round: str = ""  # RFC 3339 time of the round, which is its id; "" in facts of older versions
    inputs: Inputs = {}  # The numbers because of which the plugin chose the pod, such as usage and threshold

    @property
    def choice(self) -> str:
        """Return the key of a choice, so that choices of different plugins differ: "uid/profile/plugin"."""
        return f"{self.uid}/{self.profile}/{self.plugin}"


class ReadReports(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage reports that a round has read: the newest one of each node that has been measured."""

    nodes: int  # Number of nodes with a report
    last: int  # Position of the newest report in the stream of observations
    digest: str  # First 16 hex digits of the SHA-256 over "node=position" of all reports, sorted, one per line
    # Node -> position of its report, for the first 200 nodes that pods leave or whose detectors changed.
    positions: dict[str, int] = {}


@CATALOGUE.register(kind="descheduling")
class RoundDecided(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler chose pods that have to leave, or changed anomaly detectors."""

    started_at: str  # RFC 3339 time of the round. The next round begins an interval later, whoever leads.
    moves: list[RoundMove] = []  # The first pods that have to leave. `RoundMovesAdded` has the others.
    closed: list[str] = []  # Nodes that the round closes for new pods
    detectors: list[DetectorGroup] = []  # Anomaly detectors that the round changed
    # The usage reports on which it rests; None if no node has been measured, and in facts of older versions.
    reports: ReadReports | None = None


@CATALOGUE.register(kind="descheduling")
class RoundMovesAdded(Event, frozen=True, kw_only=True):
    """More pods have to leave because of the last round of the descheduler."""

    moves: list[RoundMove]  # The pods


@CATALOGUE.register(kind="descheduling")
class RoundCarriedOut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """All effects of the last round of the descheduler were asked for: nodes closed, jobs created, pods evicted."""

    refused: list[str] = []  # Uids of pods that stay, because their job was refused, or because they leave already


@CATALOGUE.register(kind="descheduling")
class DryRunMovesChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The set of pods that rounds would evict without dry run has changed. Nothing is evicted.

    The configuration, a plugin or the MigrationController may be in dry run. Only the first 200 such pods of a round
    are recorded.
    """

    chosen: list[RoundMove] = []  # Pods that would leave now, and would not have left before
    dropped: list[str] = []  # Pods that would have left before, and would not leave now, as `RoundMove.choice`


@CATALOGUE.register(kind="refusal", stream="explanations")
class EvictionRefused(Event, frozen=True, kw_only=True):
    """A pod that a plugin asked for in a round, and that stays.

    The fact `RefusalsChanged` contains it. It is also an explanation of its own with the subject
    `explanations.refusal.<uid of the pod>`, so that the story of a pod is read without the refusals of other pods.
    """

    # The pod, and the plugin that wanted to evict it. If a limit of the round refused it, the inputs have count and
    # limit.
    move: RoundMove
    codes: list[str]  # Codes of the reasons for which it is refused, sorted
    text: str = ""  # The reason as a sentence, if the proof or the evict plugin refused it; else ""


@CATALOGUE.register(kind="descheduling")
class RefusalsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The set of pods that filters, limits or the proof refuse has changed since the round before, or their reasons.

    A round records its first 1,000 refused evictions, and for each plugin of a profile the first 100 pods that filters
    refuse. More than 200 changes are several facts.
    """

    refused: list[EvictionRefused] = []  # Pods that are refused now, and were not refused before for the same reasons
    ended: list[str] = []  # Pods that were refused before, and are not refused now, as `RoundMove.choice`
    dropped: int = 0  # How many refused pods the round did not record


class PodCost(msgspec.Struct, frozen=True, kw_only=True):
    """The annotation `controller.kubernetes.io/pod-deletion-cost` of a pod, before and after a change."""

    namespace: str  # Namespace of the pod
    name: str  # Name of the pod
    uid: str  # Uid of the pod
    node: str  # Node of the pod
    before: str  # Value before the change; "" if the pod has no such annotation
    after: str  # Value after the change


@CATALOGUE.register(kind="descheduling")
class DeletionCostsDecided(Event, frozen=True, kw_only=True):
    """A round of the descheduler ranked pods, and is going to write the ranks as their deletion costs.

    Pods whose deletion cost does not change are left out. A round with more than 200 changes writes several facts.
    """

    started_at: str  # RFC 3339 time of the round
    profile: str  # Profile of the configuration whose plugin ranked the pods
    plugin: str  # Name of the plugin
    costs: list[PodCost]  # The changes


@CATALOGUE.register(kind="descheduling")
class DeletionCostsCarriedOut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The deletion costs of the last `DeletionCostsDecided` were written to the pods."""

    refused: dict[str, str] = {}  # Uid of a pod whose deletion cost could not be written -> the reason


class ClassifiedNodes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of one node pool, as a balance plugin such as LowNodeLoad classified them in one round."""

    plugin: str  # Name of the plugin
    pool: str = ""  # Name of the node pool; "" if the plugin has no pools
    nodes: int  # Number of nodes that the plugin compared
    low: dict[str, float] = {}  # Resource -> low threshold in percent. A node below all of them is underused.
    high: dict[str, float] = {}  # Resource -> high threshold in percent. A node above any of them is overused.
    # Whether thresholds are distances from the mean usage of the pool. False: they are absolute.
    is_deviation: bool = False
    by_requests: bool = False  # True: usage is the sum of the pods' requests. False: usage is measured.
    under: list[str] = []  # Names of underused nodes, which can take pods
    over: list[str] = []  # Names of overused nodes
    acted_on: list[str] = []  # Nodes of `over` from which pods may be evicted in this round


class RoundAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that a plugin of the descheduler chose for eviction in a round, and the result."""

    pod: str  # The pod as "namespace/name"
    uid: str  # Uid of the pod
    node: str  # Node of the pod; "" if it has none
    plugin: str  # Name of the plugin
    reason: str  # Why the plugin chose the pod
    result: str  # "success", "dry_run", or the reason why the eviction was refused


class RoundLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit for evictions in the descheduler's configuration that a round reached."""

    name: str  # Name of the limit, for example "maxNoOfPodsToEvictTotal"
    # Nodes, namespaces or workloads that are at the limit; empty for a limit of the whole cluster.
    reached_by: list[str] = []


@CATALOGUE.register(kind="round", stream="explanations")
class RoundEnded(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler ended: its plugins have looked at all nodes and chosen pods to evict.

    If a round saw and decided the same as the round before, the event is published at most once per minute.
    """

    seconds: float  # Duration of the decisions, in real seconds
    nodes: int  # Number of nodes in the cluster
    is_dry_run: bool = False  # Whether the round only counted the pods that it would evict
    classified: list[ClassifiedNodes] = []  # How plugins classified the nodes, by plugin and pool
    attempts: list[RoundAttempt] = []  # Pods that plugins chose, at most 200
    results: dict[str, int] = {}  # Result -> number of attempts
    refused: dict[str, int] = {}  # Code of a filter's reason -> number of pods that the filter refused
    limits: list[RoundLimit] = []  # Limits of the configuration that the round reached
    faults: list[str] = []  # Errors of plugins, and profiles that cannot be made, one sentence each


class ChangedField(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Old and new value of a changed field or annotation as JSON texts; "" if it is absent."""

    before: str = ""
    after: str = ""


@CATALOGUE.register(kind="descheduler")
class DeschedulerConfigured(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A descheduler began to lead with another configuration than the leader before it."""

    configuration_hash: str  # Hash of the effective configuration, 16 hex digits
    configuration: dict[str, Any]  # The effective configuration, as `/configz` shows it
    source: str = ""  # File from which it was read; "" for the defaults
    asked_by: str = ""  # User of the operating system that runs the process
    # Path of a field -> its values, for each field that changed; empty for the first configuration.
    changes: dict[str, ChangedField] = {}


@CATALOGUE.register(kind="descheduler")
class DryRunAnswered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A user has simulated rounds of the descheduler with a configuration. Nothing was changed."""

    asked_by: str = ""  # Name of the user or service that asked; "" if it gave none
    configuration_hash: str  # Hash of the configuration that was tried, 16 hex digits
    rounds: int = 1  # Number of rounds
    moves: int = 0  # Number of pods that would move
    without_place: int = 0  # Number of pods that would find no place
    without_gain: int = 0  # Number of pods whose move would not make the cluster better
