"""Decisions of the descheduler's rounds. The next leader reads them and continues in the same state.

Writer: the leading descheduler. Aggregates: `descheduling.rounds`, `descheduling.costs` for deletion costs of pods,
`descheduling.dry-runs` for pods that would leave without dry run, and `descheduling.refusals` for pods that stay.

    RoundDecided ─► RoundMovesAdded ... ─► RoundCarriedOut
    DeletionCostsDecided ─► DeletionCostsCarriedOut ─► DeletionCostsDecided ...

The decision is stored before its effects. If the leader is killed in between, the next one carries them out. A round
that chooses no pod and changes no detector has no fact. `koordcore.events.descheduling.rounds` has the explanations of
all rounds.

Source:
    descheduler spec, 4, 8.6, 14
"""

from typing import Final

import msgspec

from koordcore.events.descheduling.inputs import Inputs
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

ROUNDS: Final = AggregateRef("descheduling", "rounds")
COSTS: Final = AggregateRef("descheduling", "costs")
DRY_RUNS: Final = AggregateRef("descheduling", "dry-runs")
REFUSALS: Final = AggregateRef("descheduling", "refusals")
MOST_COSTS: Final = 200
"""Largest number of pods in one fact about deletion costs."""


class DetectorState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of an anomaly detector of LowNodeLoad, which says whether a node was hot in many rounds in a row.

    Attributes:
        is_anomalous: Whether pods may be evicted from the node because it is hot.
        abnormal: Number of rounds in a row in which the node was hot, while the detector is not anomalous.
        normal: Number of normal observations in a row.
        since: RFC 3339 time at which the detector became anomalous; "" if it is not anomalous.
        last_abnormal: RFC 3339 time of the last round in which the node was hot; "" for none.
    """

    is_anomalous: bool = False
    abnormal: int = 0
    normal: int = 0
    since: str = ""
    last_abnormal: str = ""


class DetectorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes whose anomaly detectors are in the same state.

    Attributes:
        usage: Usage that the detectors compare with thresholds: "node", or "prod" (that of prod pods).
        nodes: Names of the nodes.
        state: The state of each of these detectors. None: the detectors were reset, or forgotten after a time.
    """

    usage: str
    nodes: list[str]
    state: DetectorState | None


class RoundMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that has to leave its node because of a round.

    Attributes:
        namespace: Namespace of the pod.
        name: Name of the pod.
        uid: Uid of the pod.
        node: Node of the pod.
        profile: Profile of the configuration that chose the pod.
        plugin: Plugin that chose the pod.
        reason: Why the plugin chose it.
        job: Name of the PodMigrationJob by which the pod leaves; "" if the pod is evicted directly.
        plan: Id of the plan that moves it together with other pods; "" if it moves alone.
        round: RFC 3339 time of the round, which is its id; "" in facts of older versions.
        inputs: The numbers because of which the plugin chose the pod, such as usage and threshold.
    """

    namespace: str
    name: str
    uid: str
    node: str
    profile: str
    plugin: str
    reason: str
    job: str = ""
    plan: str = ""
    round: str = ""
    inputs: Inputs = {}

    @property
    def choice(self) -> str:
        """Return the key of a choice, so that choices of different plugins differ: "uid/profile/plugin"."""
        return f"{self.uid}/{self.profile}/{self.plugin}"


class ReadReports(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage reports that a round has read: the newest one of each node that has been measured.

    Attributes:
        nodes: Number of nodes with a report.
        last: Position of the newest report in the stream of observations.
        digest: First 16 hex digits of the SHA-256 over "node=position" of all reports, sorted, one per line.
        positions: Node -> position of its report, for the first 200 nodes that pods leave or whose detectors changed.
    """

    nodes: int
    last: int
    digest: str
    positions: dict[str, int] = {}


@CATALOGUE.register(kind="descheduling")
class RoundDecided(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A round of the descheduler chose pods that have to leave, or changed anomaly detectors.

    Attributes:
        started_at: RFC 3339 time of the round. The next round begins an interval later, whoever leads.
        moves: The first pods that have to leave. `RoundMovesAdded` has the others.
        closed: Nodes that the round closes for new pods.
        detectors: Anomaly detectors that the round changed.
        reports: The usage reports on which it rests; None if no node has been measured, and in facts of older versions.
    """

    started_at: str
    moves: list[RoundMove] = []
    closed: list[str] = []
    detectors: list[DetectorGroup] = []
    reports: ReadReports | None = None


@CATALOGUE.register(kind="descheduling")
class RoundMovesAdded(Event, frozen=True, kw_only=True):
    """More pods have to leave because of the last round of the descheduler.

    Attributes:
        moves: The pods.
    """

    moves: list[RoundMove]


@CATALOGUE.register(kind="descheduling")
class RoundCarriedOut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """All effects of the last round of the descheduler were asked for: nodes closed, jobs created, pods evicted.

    Attributes:
        refused: Uids of pods that stay, because their job was refused, or because they leave already.
    """

    refused: list[str] = []


@CATALOGUE.register(kind="descheduling")
class DryRunMovesChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The set of pods that rounds would evict without dry run has changed. Nothing is evicted.

    The configuration, a plugin or the MigrationController may be in dry run. Only the first 200 such pods of a round
    are recorded.

    Attributes:
        chosen: Pods that would leave now, and would not have left before.
        dropped: Pods that would have left before, and would not leave now, as `RoundMove.choice`.
    """

    chosen: list[RoundMove] = []
    dropped: list[str] = []


@CATALOGUE.register(kind="refusal", stream="explanations")
class EvictionRefused(Event, frozen=True, kw_only=True):
    """A pod that a plugin asked for in a round, and that stays.

    The fact `RefusalsChanged` contains it. It is also an explanation of its own with the subject
    `explanations.refusal.<uid of the pod>`, so that the story of a pod is read without the refusals of other pods.

    Attributes:
        move: The pod, and the plugin that wanted to evict it. If a limit of the round refused it, the inputs have count
            and limit.
        codes: Codes of the reasons for which it is refused, sorted.
        text: The reason as a sentence, if the proof or the evict plugin refused it; else "".
    """

    move: RoundMove
    codes: list[str]
    text: str = ""


@CATALOGUE.register(kind="descheduling")
class RefusalsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The set of pods that filters, limits or the proof refuse has changed since the round before, or their reasons.

    A round records its first 1,000 refused evictions, and for each plugin of a profile the first 100 pods that filters
    refuse. More than 200 changes are several facts.

    Attributes:
        refused: Pods that are refused now, and were not refused before for the same reasons.
        ended: Pods that were refused before, and are not refused now, as `RoundMove.choice`.
        dropped: How many refused pods the round did not record.
    """

    refused: list[EvictionRefused] = []
    ended: list[str] = []
    dropped: int = 0


class PodCost(msgspec.Struct, frozen=True, kw_only=True):
    """The annotation `controller.kubernetes.io/pod-deletion-cost` of a pod, before and after a change.

    Attributes:
        namespace: Namespace of the pod.
        name: Name of the pod.
        uid: Uid of the pod.
        node: Node of the pod.
        before: Value before the change; "" if the pod has no such annotation.
        after: Value after the change.
    """

    namespace: str
    name: str
    uid: str
    node: str
    before: str
    after: str


@CATALOGUE.register(kind="descheduling")
class DeletionCostsDecided(Event, frozen=True, kw_only=True):
    """A round of the descheduler ranked pods, and is going to write the ranks as their deletion costs.

    Pods whose deletion cost does not change are left out. A round with more than 200 changes writes several facts.

    Attributes:
        started_at: RFC 3339 time of the round.
        profile: Profile of the configuration whose plugin ranked the pods.
        plugin: Name of the plugin.
        costs: The changes.
    """

    started_at: str
    profile: str
    plugin: str
    costs: list[PodCost]


@CATALOGUE.register(kind="descheduling")
class DeletionCostsCarriedOut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The deletion costs of the last `DeletionCostsDecided` were written to the pods.

    Attributes:
        refused: Uid of a pod whose deletion cost could not be written -> the reason.
    """

    refused: dict[str, str] = {}
