"""The usage models of one node: trained every minute from the series, used in every report, stored on disk.

    series --P90 of the last minute--> samples --> models --> `reclaimable` --> prodReclaimable, prodPeak

Owned by one task. `koord_agent.shell.node.predicting` stores the files.

Source: agent spec, 8.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, parse_amounts

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.prediction import reclaimable
from koord_agent.domain.prediction.model import HalfLives, Peak, UsageModel, model_of_checkpoint

NODE: Final = "__node__"
SYSTEM: Final = "__node-sys__"
CLASSES: Final = (*(str(band) for band in PriorityBand), "")
"""Priority classes that have a model; "" stands for pods without class."""
TRAINING_WINDOW_MS: Final = 60_000


def class_uid(priority_class: str) -> str:
    """The UID under which the usage model of a priority class is stored."""
    return f"__node-{priority_class}__"


NODE_UIDS: Final = frozenset({NODE, SYSTEM, *(class_uid(name) for name in CLASSES)})
"""UIDs of models that do not belong to a pod."""


class Used(NamedTuple):
    """A training sample: the 90th percentile of usage in the last minute, in cores and bytes."""

    cpu_cores: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsed:
    """The 90th percentile of one pod's usage in the last minute; None if there is no sample."""

    uid: str
    priority_class: str
    cpu_cores: float | None
    memory_bytes: float | None


def training_samples(node: Used | None, pods: Iterable[PodUsed]) -> dict[str, Used]:
    """Return UID of a model -> sample, for all models that are trained now: of pods, priority classes, system and node.

    A class without pods gets the sample 0. A pod without a CPU or memory sample is skipped. Without a sample of the
    node, the models of node and system are skipped (D-13).

    Args:
        node: Usage of the node; None without a sample.

    Source:
        agent spec, 8.2.
    """
    samples: dict[str, Used] = {}
    by_class = dict.fromkeys(CLASSES, Used(0.0, 0.0))
    everything = Used(0.0, 0.0)
    for pod in pods:
        if pod.cpu_cores is None or pod.memory_bytes is None:
            continue
        used = Used(pod.cpu_cores, pod.memory_bytes)
        if pod.uid:
            samples[pod.uid] = used
        name = pod.priority_class if pod.priority_class in by_class else ""
        by_class[name] = _add(by_class[name], used)
        everything = _add(everything, used)
    if node is not None:
        samples[NODE] = node
        samples[SYSTEM] = Used(
            max(node.cpu_cores - everything.cpu_cores, 0.0), max(node.memory_bytes - everything.memory_bytes, 0.0)
        )
    for name, used in by_class.items():
        samples[class_uid(name)] = used
    return samples


def _add(left: Used, right: Used) -> Used:
    return Used(left.cpu_cores + right.cpu_cores, left.memory_bytes + right.memory_bytes)


@dataclass(slots=True, kw_only=True, eq=False)
class PeakPredictor:
    """Trains the models of one node, predicts usage with them, and selects those to store. Times are Unix seconds."""

    half_lives: HalfLives = field(default_factory=HalfLives)  # how fast old samples lose weight
    cold_start_seconds: float = reclaimable.COLD_START_SECONDS  # age of a pod below which its whole request counts
    safety_margin_percent: float = reclaimable.SAFETY_MARGIN_PERCENT  # added to predictions
    training_seconds: float = 60.0  # interval between two trainings
    expiration_seconds: float = 1_800.0  # time without samples after which a model is deleted
    checkpoint_seconds: float = 600.0  # interval in which each model is stored once
    checkpoints_per_step: int = 12  # maximum number of models that are stored at once
    _models: dict[str, UsageModel] = field(default_factory=dict[str, UsageModel])
    _saved: dict[str, float] = field(default_factory=dict[str, float])
    _trained_at: float | None = None

    def __len__(self) -> int:
        return len(self._models)

    @property
    def synced(self) -> bool:
        """Whether the models were trained at least once since the start."""
        return self._trained_at is not None

    def is_due(self, now: float) -> bool:
        """A clock that is set back does not delay the training."""
        last = self._trained_at
        return last is None or not 0 <= now - last < self.training_seconds

    def train(self, metrics: Metrics, pods: Iterable[AgentPod], now: float) -> None:
        """Add one sample to each model: the 90th percentile of usage in the last minute.

        A model that does not exist yet is created. A model without a measured usage gets no sample.
        """

        def p90(kind: Kind, of: str = "") -> float | None:
            return metrics.over(kind, "p90", TRAINING_WINDOW_MS, of)

        node_cpu, node_memory = p90(Kind.NODE_CPU), p90(Kind.NODE_MEMORY)
        node = None if node_cpu is None or node_memory is None else Used(node_cpu, node_memory)
        used = [
            PodUsed(
                uid=pod.uid,
                priority_class=pod.priority,
                cpu_cores=p90(Kind.POD_CPU, pod.uid),
                memory_bytes=p90(Kind.POD_MEMORY, pod.uid),
            )
            for pod in pods
        ]
        for uid, sample in training_samples(node, used).items():
            model = self._models.get(uid)
            if model is None:
                model = self._models[uid] = UsageModel(self.half_lives)
            model.add(sample.cpu_cores, sample.memory_bytes, now)
        self._trained_at = now

    def predict(
        self, pods: Sequence[AgentPod], allocatable: Amounts, annotations: Mapping[str, str], now: float
    ) -> reclaimable.ProdPrediction:
        """Predict the peak usage of prod pods, and the part of their requests that they will not use (agent spec, 8.4).

        If the annotation raw-allocatable of the node is set, it is used instead of `allocatable`.
        """
        counted = [self._counted(pod, now) for pod in pods if reclaimable.takes_part(pod.priority)]
        classes = {name: self._peak(class_uid(name)) for name in (str(PriorityBand.PROD), "")}
        return reclaimable.predict_prod(
            _raw_allocatable(allocatable, annotations),
            counted,
            {reclaimable.SYSTEM_CLASS: self._peak(SYSTEM), **classes},
            cold_start_seconds=self.cold_start_seconds,
            safety_margin_percent=self.safety_margin_percent,
        )

    def _counted(self, pod: AgentPod, now: float) -> reclaimable.ProdPod:
        """A young or finished pod has no prediction."""
        age_seconds, is_over = self._age(pod, now), pod.is_terminating or pod.is_finished
        return reclaimable.ProdPod(
            request=Peak(cpu_milli=pod.requests.get(CPU, 0), memory_bytes=pod.requests.get(MEMORY, 0)),
            age_seconds=age_seconds,
            prediction=None if is_over or age_seconds <= self.cold_start_seconds else self._peak(pod.uid),
            is_over=is_over,
        )

    def _peak(self, uid: str) -> Peak | None:
        model = self._models.get(uid)
        return model.peak() if model is not None else None

    def _age(self, pod: AgentPod, now: float) -> float:
        """Seconds since the pod, or else its model, was created."""
        if pod.created_ms is not None:
            return now - pod.created_ms / 1000
        model = self._models.get(pod.uid)
        return now - model.learning_since if model is not None else 0.0

    def drop_expired(self, now: float) -> list[str]:
        """Delete models without a sample for too long, and return their UIDs. The caller deletes their checkpoints."""
        oldest = now - self.expiration_seconds
        return self._dropped([uid for uid, model in self._models.items() if model.updated < oldest])

    def drop_others(self, known: Set[str]) -> list[str]:
        """Delete all models but those with these UIDs, and return the UIDs of the deleted ones."""
        return self._dropped([uid for uid in self._models if uid not in known])

    def _dropped(self, uids: list[str]) -> list[str]:
        for uid in uids:
            del self._models[uid]
            self._saved.pop(uid, None)
        return uids

    def checkpoints_due(self, now: float) -> list[tuple[str, bytes]]:
        """Return UID and bytes of the models to store now, the longest unsaved first, and mark them as saved.

        Source: agent spec, 8.3.
        """
        newest = now - self.checkpoint_seconds
        saved = {uid: self._saved.get(uid, float("-inf")) for uid in self._models}
        due = sorted((at, uid) for uid, at in saved.items() if at <= newest or at > now)
        chosen = [uid for _, uid in due[: self.checkpoints_per_step]]
        self._saved.update(dict.fromkeys(chosen, now))
        return [(uid, self._models[uid].checkpoint(uid)) for uid in chosen]

    def restore(self, uid: str, data: bytes) -> bool:
        """Return False, and add nothing, if the checkpoint is invalid."""
        try:
            model = model_of_checkpoint(data, uid, self.half_lives)
        except (codec.DecodeError, InvalidInput, ValueError, OverflowError):
            return False
        self._models[uid] = model
        self._saved[uid] = model.updated
        return True


def _raw_allocatable(allocatable: Amounts, annotations: Mapping[str, str]) -> Peak:
    text = annotations.get(keys.RAW_ALLOCATABLE)
    if text:
        with contextlib.suppress(codec.DecodeError, InvalidInput):
            allocatable = parse_amounts(codec.decode(text, dict[str, str | int | float]))
    return Peak(cpu_milli=allocatable.get(CPU, 0), memory_bytes=allocatable.get(MEMORY, 0))
