"""FragmentationAware: move a pod off each node whose resources are requested unevenly.

Source:
    descheduler spec, 9.3
"""

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import Text
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool, StrictFloat

from koord_descheduler.domain.config.arguments import native_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind, SharedState
from koord_descheduler.domain.plugins.fragmentation_aware.gpu_repack import GpuRepack, GpuRepackArgs, check_repack
from koord_descheduler.domain.plugins.scope import Scope, ScopeArgs, check_resources, check_scope
from koord_descheduler.domain.view.fit import FitIndex
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "FragmentationAware"


class FragmentationAwareArgs(ScopeArgs):
    resources: tuple[Text, ...] = ("cpu", "memory")
    imbalance_threshold: StrictFloat = 0.15  # A node whose imbalance is at most this is left alone
    min_improvement_threshold: StrictFloat = 0.02  # A move must lower the imbalance by more than this
    node_fit: StrictBool = True  # Whether a pod must fit another node
    dry_run: StrictBool = False
    gpu_repack: GpuRepackArgs | None = None  # Makes room for gangs that wait for whole GPUs; None: off


def check(args: FragmentationAwareArgs) -> Iterator[InvalidInput]:
    yield from check_scope(args)
    yield from check_resources(args.resources)
    thresholds = {
        "imbalanceThreshold": args.imbalance_threshold,
        "minImprovementThreshold": args.min_improvement_threshold,
    }
    for name, value in thresholds.items():
        if not 0 <= value < float("inf"):
            yield InvalidInput("at least 0", value, name)
    if args.gpu_repack is not None:
        yield from check_repack(args.gpu_repack)


def imbalance(requested: Mapping[str, int], node: NodeView, resources: Sequence[str]) -> float:
    """Population standard deviation of requested / allocatable over the resources of a node; 0.0 if at most one."""
    shares = [
        requested.get(name, 0) / allocatable for name in resources if (allocatable := node.allocatable.get(name, 0))
    ]
    if not shares:
        return 0.0
    mean = sum(shares) / len(shares)
    return sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))


class FragmentationAware:
    """Evicts, from each node with uneven requests, the pod whose leaving lowers the imbalance most.

    Before that, if a gang waits for whole GPUs and the arguments say so, it requests the moves of a plan.
    """

    name = NAME

    def __init__(self, args: FragmentationAwareArgs, shared: SharedState) -> None:
        self._args = args
        self._scope = Scope(args)
        self._repack = GpuRepack(args.gpu_repack or GpuRepackArgs(), self._scope, shared, is_dry_run=args.dry_run)

    def balance(self, run: PluginRun) -> None:
        if self._args.paused:
            return
        self._repack.run(run)
        nodes = self._scope.nodes(run)
        index = FitIndex(nodes, run.cluster)
        for node in nodes:
            requested = run.cluster.occupancy(node.name).requested
            before = imbalance(requested, node, self._args.resources)
            if before <= self._args.imbalance_threshold:
                continue
            for gain, pod in self._by_gain(node, requested, before, run):
                if self._args.node_fit and not index.fits_any(pod, other_than=node.name):
                    continue
                if run.pre_eviction_filter(pod):
                    reason = f"stdBefore={before:.4f} stdAfter={before - gain:.4f} gain={gain:.4f}"
                    evict = run.try_evict if self._args.dry_run else run.evict
                    inputs = {
                        "imbalance": Number(value=before, limit=self._args.imbalance_threshold),
                        "gain": Number(value=gain, limit=self._args.min_improvement_threshold),
                    }
                    evict(pod, f"fragmentation reduction: {reason}", inputs)
                break

    def _by_gain(
        self, node: NodeView, requested: Mapping[str, int], before: float, run: PluginRun
    ) -> Iterator[tuple[float, PodView]]:
        """Pods that may leave, with the imbalance that each saves, the largest first."""
        gains: list[tuple[float, PodView]] = []
        for pod in run.cluster.unfinished_on(node.name):
            without = {name: requested.get(name, 0) - pod.requests.get(name, 0) for name in self._args.resources}
            gain = before - imbalance(without, node, self._args.resources)
            if gain > self._args.min_improvement_threshold:
                gains.append((gain, pod))
        for gain, pod in sorted(gains, key=lambda each: -each[0]):
            if self._scope.may_leave(pod, run):
                yield gain, pod


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    is_native=True,
    decode=lambda raw: native_args(raw, FragmentationAwareArgs),
    check=check,
    make=FragmentationAware,
)
