"""Pods of all simulated nodes as columns."""

from dataclasses import dataclass

import numpy as np
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.qos import KubeQos
from numpy.typing import NDArray

from koord_agent.domain.simulating.simulation import Floats, ProfileKind, ProfileTable, UsageProfile
from koord_agent.domain.state.pods import AgentPod

PAGE_CACHE_FRACTION = 0.1
"""Page cache of a pod as a share of its memory request."""
FIRST_ROWS = 256


@dataclass(slots=True)
class Snapshot:
    """Counters of all simulated pods and nodes at one time, as lists of Python numbers.

    They are created once per cycle. Reading single values from arrays is ten times slower.
    """

    at_ns: int
    pod_cpu_ns: list[int]
    pod_memory: list[int]
    pod_page_cache: list[int]
    pod_periods: list[int]
    pod_throttled: list[int]
    node_busy_ns: list[int]
    node_memory: list[int]
    node_page_cache: list[int]
    be_cpu_ns: list[int]
    be_periods: list[int]
    be_throttled: list[int]


class PodColumns:
    """The pods of all simulated nodes as columns with one row per pod.

    Rows of ended pods are reused; the number of rows doubles when all are used.

    Attributes:
        cpu_limit: Cores that quota and CPU list of the pod allow; infinite without a limit.
        periods: CFS periods since the pod got a quota.
        throttled: CFS periods in which it was throttled.
        instructions: Retired instructions.
        wait_ns: Nanoseconds that its threads waited for a CPU.
        slices: Number of time slices.
    """

    COLUMNS = (
        "node",
        "is_best_effort",
        "cpu_request",
        "cpu_limit",
        "memory_bytes",
        "page_cache_bytes",
        "cpu_ns",
        "periods",
        "throttled",
        "instructions",
        "wait_ns",
        "slices",
        "kind",
        "level",
        "swing",
        "period_seconds",
        "phase_seconds",
        "duty",
        "seed",
    )

    def __init__(self) -> None:
        self.rows = FIRST_ROWS
        self.node = np.zeros(self.rows, np.int64)
        self.is_best_effort = np.zeros(self.rows, np.bool_)
        self.cpu_request = np.zeros(self.rows, np.float64)
        self.cpu_limit = np.full(self.rows, np.inf)
        self.memory_bytes = np.zeros(self.rows, np.int64)
        self.page_cache_bytes = np.zeros(self.rows, np.int64)
        self.cpu_ns = np.zeros(self.rows, np.int64)
        self.periods = np.zeros(self.rows, np.float64)
        self.throttled = np.zeros(self.rows, np.float64)
        self.instructions = np.zeros(self.rows, np.float64)
        self.wait_ns = np.zeros(self.rows, np.float64)
        self.slices = np.zeros(self.rows, np.float64)
        self.kind = np.zeros(self.rows, np.int8)
        self.level = np.zeros(self.rows, np.float64)
        self.swing = np.zeros(self.rows, np.float64)
        self.period_seconds = np.ones(self.rows, np.float64)
        self.phase_seconds = np.zeros(self.rows, np.float64)
        self.duty = np.zeros(self.rows, np.float64)
        self.seed = np.zeros(self.rows, np.uint64)
        self.traces: dict[int, tuple[Floats, Floats]] = {}
        self.free = list(range(self.rows - 1, -1, -1))

    def add(self, node: int, pod: AgentPod, profile: UsageProfile) -> int:
        """Add a pod and return its row. Its counters start at zero.

        Args:
            node: Position of its node.
            pod: The pod.
            profile: Its usage over time.
        """
        if not self.free:
            self._grow()
        row = self.free.pop()
        self.node[row] = node
        memory = pod.memory_request_bytes or DEFAULT_MEMORY_BYTES
        # the cgroup decides whom the best-effort quota holds, not the label
        self.is_best_effort[row] = pod.kube_qos is KubeQos.BEST_EFFORT
        self.cpu_request[row] = (pod.cpu_request_milli or DEFAULT_CPU_MILLI) / 1000
        self.cpu_limit[row] = np.inf
        self.memory_bytes[row] = int(memory * profile.memory_fraction)
        self.page_cache_bytes[row] = int(memory * PAGE_CACHE_FRACTION)
        for counter in (self.cpu_ns, self.periods, self.throttled, self.instructions, self.wait_ns, self.slices):
            counter[row] = 0
        self.kind[row] = profile.kind
        self.level[row] = profile.level
        self.swing[row] = profile.swing
        self.period_seconds[row] = profile.period_seconds
        self.phase_seconds[row] = profile.phase_seconds
        self.duty[row] = profile.duty
        self.seed[row] = profile.seed
        if profile.kind is ProfileKind.TRACE:
            points = np.array(profile.points, np.float64)
            self.traces[row] = (points[:, 0], points[:, 1])
        return row

    def remove(self, row: int) -> None:
        """Free the row of a pod that ended, so that another pod can use it."""
        self.cpu_request[row] = 0.0
        self.cpu_limit[row] = np.inf
        self.memory_bytes[row] = self.page_cache_bytes[row] = 0
        self.kind[row] = ProfileKind.CONSTANT
        self.level[row] = 0.0
        self.traces.pop(row, None)
        self.free.append(row)

    def profiles(self) -> ProfileTable:
        """Return the usage profiles of all rows."""
        return ProfileTable(
            kind=self.kind,
            level=self.level,
            swing=self.swing,
            period_seconds=self.period_seconds,
            phase_seconds=self.phase_seconds,
            duty=self.duty,
            seed=self.seed,
            traces=self.traces,
        )

    def _grow(self) -> None:
        old = self.rows
        self.rows = old * 2
        for name in self.COLUMNS:
            column: NDArray[np.generic] = getattr(self, name)
            # repeats old values into the new rows; add() sets all of a row, and unused rows must request nothing
            setattr(self, name, np.resize(column, self.rows))
        self.cpu_request[old:] = 0.0
        self.memory_bytes[old:] = self.page_cache_bytes[old:] = 0
        self.free.extend(range(self.rows - 1, old - 1, -1))
