"""Scores of nodes and GPUs by GPU fragmentation, as part of DeviceShare's score. `koordcore.fragmentation` computes the
scores from arrays; this module fills the arrays from the devices. Typical pods are learned from the pods that were
created in a window of time. The counts and the result are folds of the log, so a replay gives the same scores.

Source: gpu-fragmentation spec, 3 and 6
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
import numpy as np
from koordcore.events.cluster import TypicalPod as LearnedPod
from koordcore.events.cluster import TypicalPodsLearned
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.fragmentation.nodes import GpuColumns
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, TypicalPod, gpu_pod, requests_of, typical_pods
from koordcore.fragmentation.scoring import NO_SCORE, GpuScoring, ScoringName, node_scores, scoring_of
from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE
from koordcore.protocol.resource_names import CPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values import codec

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.config.koordinator_args import GpuFragmentation
from koord_scheduler.domain.plugins.device.allocator import Terms
from koord_scheduler.domain.plugins.device.columns import NAMES, UNLIMITED
from koord_scheduler.domain.plugins.device.node_scores import device_scores
from koord_scheduler.domain.plugins.device.node_states import NodeStates
from koord_scheduler.domain.plugins.device.pod_devices import PodDevices
from koord_scheduler.domain.plugins.device.refusal import Refusal

_PER_PERCENT = WHOLE_GPU // WHOLE
_CORE = NAMES[GPU_TYPE].index(GPU_CORE)
_RATIO = NAMES[GPU_TYPE].index(GPU_MEMORY_RATIO)


class FragmentationScores:
    """Scores nodes and GPUs by how much GPU capacity stays usable for typical pods after the placement. `typical`:
    typical requests of pods and their frequency. If empty, every score is 50. `weight`: weight of the fragmentation
    score in `combined`; the score of the scoring strategy has weight 1.
    """

    def __init__(
        self, nodes: NodeColumns, states: NodeStates, typical: Sequence[TypicalPod], policy: ScoringName, weight: int
    ) -> None:
        self._nodes = nodes
        self._states = states
        self.typical = tuple(typical)
        self._policy: ScoringName = policy
        self._weight = weight
        self._models: tuple[str, ...] = ()
        self._scoring: GpuScoring | None = None

    def learn(self, typical: Sequence[TypicalPod]) -> None:
        """Replace the typical pods. All nodes are scored again."""
        self.typical = tuple(typical)
        self._scoring = None
        self._nodes.judge_anew()

    def combined(self, milli_cpu: int, asked: PodDevices | None, rows: Rows) -> IntArray:
        """Return a score 0..100 for each node, int64 (K,): the weighted mean of two scores. The two are the score by
        GPU fragmentation and the score by the free amounts of devices. `milli_cpu`: milli-cores that the pod requests.
        `asked`: devices that the pod requests; None: no devices. `rows`: positions of the nodes, shape (K,).
        """
        strategy = np.zeros(len(rows), np.int64) if asked is None else device_scores(self._states, asked, rows)
        return (strategy + self._weight * self.node_scores(milli_cpu, asked, rows)) // (1 + self._weight)

    def node_scores(self, milli_cpu: int, asked: PodDevices | None, rows: Rows) -> IntArray:
        """Return a score for each node by fragmentation alone, int64 (K,) within 0..100. `milli_cpu`: milli-cores that
        the pod requests. `asked`: devices that the pod requests; None: no devices. `rows`: positions of the nodes,
        shape (K,).
        """
        scores = np.full(len(rows), NO_SCORE, np.int64)
        if not self.typical:
            return scores
        gpu = asked.gpu if asked is not None else None
        view = self._view(rows)
        scoring = self._scoring_for(view.models)
        if gpu is None or asked is None:
            return node_scores(scoring, view, GpuPod(milli_cpu, 0, 0)) if asked is None else scores
        shares = self._gpu_milli(asked, rows)
        is_one_share = gpu.is_shared and gpu.count == 1
        on_cards: IntArray = np.full(view.gpu_milli_left.shape, -1, np.int64)
        for share in np.unique(shares).tolist():
            places = np.flatnonzero(shares == share)
            part, pod = view.of_rows(places), GpuPod(milli_cpu, share, gpu.count)
            if is_one_share:
                on_cards[places] = scoring.share_scores(part, pod)
            else:
                scores[places] = node_scores(scoring, part, pod)
        if is_one_share:
            best = on_cards.max(axis=1)
            scores = np.where(best < 0, NO_SCORE, best)
        if gpu.is_shared:
            # Scopes, partitions and hints may choose another card than the one with the best score.
            may_differ = self._states.has_devices[rows]
            if asked.is_simple and is_one_share:
                may_differ = may_differ & self._states.has_tree[rows]
            alike: dict[tuple[int, int], int] = {}
            for place in row_list(np.flatnonzero(may_differ)):
                row = int(rows[place])
                state = (self._states.state_of(row), int(view.milli_cpu_left[place]))
                if state not in alike:
                    cards = self._by_minor(row, on_cards[place].tolist()) if is_one_share else {}
                    alike[state] = self._chosen_score(scoring, milli_cpu, asked, row, cards, int(scores[place]))
                scores[place] = alike[state]
        return scores

    def card_scores(self, milli_cpu: int, asked: PodDevices, row: int) -> dict[int, int]:
        """Return minor number -> score of each GPU of a node, for a pod that shares one GPU; empty for any other pod.
        `milli_cpu`: milli-cores that the pod requests. `asked`: devices that the pod requests.
        """
        gpu, devices = asked.gpu, self._states.devices_of(row)
        if gpu is None or devices is None or not self.typical or not gpu.is_shared or gpu.count != 1:
            return {}
        rows = np.array([row], np.intp)
        view = self._view(rows)
        pod = GpuPod(milli_cpu, int(self._gpu_milli(asked, rows)[0]), 1)
        return self._by_minor(row, self._scoring_for(view.models).share_scores(view, pod)[0].tolist())

    def _by_minor(self, row: int, scores: Sequence[int]) -> dict[int, int]:
        return {minor: scores[place] for minor, place in self._states.columns[GPU_TYPE].on_node[row].places.items()}

    def _chosen_score(
        self,
        scoring: GpuScoring,
        milli_cpu: int,
        asked: PodDevices,
        row: int,
        cards: Mapping[int, int],
        otherwise: int,
    ) -> int:
        """Return the score of the cards that the allocator would choose on a node; `otherwise` if it refuses. `cards`
        has the score of each card for a share of one GPU.
        """
        found = self._states.allocate(asked, row, Terms(scoring=self._states.scoring, card_scores=cards))
        if isinstance(found, Refusal):
            return otherwise
        minors = [each.minor for each in found if each.type == GPU_TYPE]
        if cards:
            return cards[minors[0]]
        rows = np.array([row], np.intp)
        view, share = self._view(rows), int(self._gpu_milli(asked, rows)[0])
        lefts = view.gpu_milli_left.copy()
        places = self._states.columns[GPU_TYPE].on_node[row].places
        lefts[0, [places[minor] for minor in minors]] -= share
        after = GpuColumns(view.milli_cpu_left - milli_cpu, lefts, view.gpu_count, view.model, view.models)
        return int(scoring.scores_of(view, after, share * len(minors))[0])

    def _scoring_for(self, models: tuple[str, ...]) -> GpuScoring:
        if self._scoring is None or models != self._models:
            self._models = models
            self._scoring = scoring_of(self._policy, self.typical, models)
        return self._scoring

    def _view(self, rows: Rows) -> GpuColumns:
        """Return the free CPU and GPU amounts of rows. A card without both amounts left has nothing left."""
        left = self._states.columns[GPU_TYPE].left
        percents = np.minimum(left[_CORE][rows], left[_RATIO][rows])
        labels = self._nodes.label(keys.GPU_MODEL)
        return GpuColumns(
            milli_cpu_left=self._nodes.free[self._nodes.column(CPU)][rows],
            gpu_milli_left=np.where(percents == UNLIMITED, 0, np.clip(percents, 0, WHOLE)) * _PER_PERCENT,
            gpu_count=self._states.columns[GPU_TYPE].cards[rows],
            model=labels.values[rows].astype(np.int64),
            models=tuple(text or "" for text in labels.texts),
        )

    def _gpu_milli(self, asked: PodDevices, rows: Rows) -> IntArray:
        """Return the GPU milli on each card, int64 (K,). It depends on the node if memory is requested in bytes."""
        assert asked.gpu is not None, "the pod requests GPUs"
        per_card = asked.gpu.per_device
        percent = max(per_card.get(GPU_CORE, 0), per_card.get(GPU_MEMORY_RATIO, 0))
        percents = np.full(len(rows), percent, np.int64)
        memory = per_card.get(GPU_MEMORY, 0)
        if memory:
            capacity = np.maximum(self._states.columns[GPU_TYPE].memory[rows].max(axis=1), 1)
            percents = np.maximum(percents, memory * WHOLE // capacity)
        return np.minimum(percents * _PER_PERCENT, WHOLE_GPU)


def fragmentation_scores(nodes: NodeColumns, states: NodeStates, args: GpuFragmentation) -> FragmentationScores | None:
    """Return the scores by fragmentation that DeviceShare's arguments configure; None if they are not enabled. `args`:
    the part `gpuFragmentation` of the arguments.
    """
    if not args.enabled:
        return None
    typical = [
        TypicalPod(gpu_pod(each.milli_cpu, each.gpu_milli, each.num_gpu, each.gpu_models), each.frequency)
        for each in args.typical_pods
    ]
    return FragmentationScores(nodes, states, typical, args.policy, args.weight)


KINDS: Final = frozenset({"podspec", "gpuworkload"})
REF: Final = AggregateRef("gpuworkload", "default")


class _Facts(msgspec.Struct, frozen=True):
    counts: list[tuple[int, list[tuple[GpuPod, int]]]]
    learned: TypicalPodsLearned | None
    due: float


class LearnedPods:
    """Counts the requests of created pods by time, and keeps the typical pods that were published last.
    `window_seconds`: Pods older than this do not count. It is a multiple of the interval, or rounded up to one.
    `interval_seconds`: seconds between two calculations of the typical pods. Pods are counted per interval.
    `threshold_percent`: the typical pods are the most frequent requests that together cover this percentage of the
    pods.
    """

    def __init__(self, window_seconds: float, interval_seconds: float, threshold_percent: float) -> None:
        self._window = window_seconds
        self._interval = interval_seconds
        self._threshold = threshold_percent
        self._counts: dict[int, Counter[GpuPod]] = {}
        self._learned: TypicalPodsLearned | None = None
        self._due = 0.0

    @property
    def typical(self) -> list[TypicalPod]:
        """The typical pods that were published last; empty if none were published."""
        listed = self._learned.typical_pods if self._learned is not None else []
        return [
            TypicalPod(GpuPod(each.milli_cpu, each.gpu_milli, each.num_gpu, each.gpu_models), each.frequency)
            for each in listed
        ]

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Count the pod of a `PodSpecAdded` event, or store the typical pods of a `TypicalPodsLearned` event. Result:
        whether the typical pods have changed.
        """
        match event:
            case PodSpecAdded(object=pod):
                requests = requests_of(pod)
                if requests is not None:
                    interval = int(_seconds(stored.occurred_at) // self._interval)
                    self._counts.setdefault(interval, Counter())[requests] += 1
            case TypicalPodsLearned():
                changed = self._learned is None or self._learned.typical_pods != event.typical_pods
                self._learned = event
                self._due = _seconds(stored.occurred_at) + self._interval
                return changed
            case _:
                pass
        return False

    def due(self) -> float | None:
        """Return when typical pods are to be learned again, in Unix seconds. None if no pod is counted."""
        return self._due if self._counts else None

    def learn(self, now: float) -> TypicalPodsLearned | None:
        """Return an event with the typical pods of the window that ends at `now`; None if they have not changed. Older
        counts are dropped. `typical` changes only when `apply` gets the event. `now`: present time in Unix seconds.
        """
        self._due = now + self._interval
        first = int((now - self._window) // self._interval)
        for interval in [interval for interval in self._counts if interval < first]:
            del self._counts[interval]
        counts: Counter[GpuPod] = Counter()
        for each in self._counts.values():
            counts.update(each)
        found = [
            LearnedPod(
                milli_cpu=each.pod.milli_cpu,
                gpu_milli=each.pod.gpu_milli,
                num_gpu=each.pod.num_gpu,
                gpu_models=each.pod.gpu_spec,
                frequency=each.frequency,
            )
            for each in typical_pods(counts.elements(), self._threshold)
        ]
        if self._learned is not None and self._learned.typical_pods == found:
            return None
        return TypicalPodsLearned(pods=counts.total(), window_seconds=int(self._window), typical_pods=found)

    def facts(self) -> bytes:
        counts = [(interval, sorted(counter.items())) for interval, counter in sorted(self._counts.items())]
        return codec.encode(_Facts(counts, self._learned, self._due))

    def restore(self, facts: bytes) -> None:
        found = codec.decode(facts, _Facts)
        self._counts = {interval: Counter(dict(counts)) for interval, counts in found.counts}
        self._learned = found.learned
        self._due = found.due


def _seconds(occurred_at: str) -> float:
    return datetime.fromisoformat(occurred_at).timestamp()


def learned_from(args: GpuFragmentation) -> LearnedPods | None:
    """Return a new learner of typical pods; None if scores by fragmentation are off or typical pods are configured.
    `args`: the part `gpuFragmentation` of DeviceShare's arguments.
    """
    if not args.enabled or args.typical_pods:
        return None
    learning = args.learning
    return LearnedPods(learning.window, learning.refresh_interval, learning.popularity_threshold_percent)
