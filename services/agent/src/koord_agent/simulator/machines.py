"""Simulated machines and their pods as numpy columns, which advance together.

Pods use CPU and memory by their profile (`load`), obey the quotas and CPU lists that the agent writes to them and to
their class, and slow each other down. Counters accumulate like those of a kernel, so the same collectors and the same
executor run on them. The machines are not thread-safe: one task advances and reads them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.qos import KubeQos
from numpy.typing import NDArray

from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US
from koord_agent.domain.node.pods import AgentPod
from koord_agent.simulator.load import (
    CYCLES_PER_SECOND,
    WINDOWS_SECONDS,
    Floats,
    ProfileKind,
    ProfileTable,
    UsageProfile,
    interference,
    mean_fractions,
    running_averages,
    share_cpu,
    sum_by_node,
)
from koord_agent.simulator.nodes import SimulatedNode

PAGE_CACHE_FRACTION = 0.1
"""Page cache of a pod as a share of its memory request."""
FIRST_ROWS = 256
NANOSECONDS = 1_000_000_000
PERIOD_SECONDS = CFS_PERIOD_US / 1_000_000
SYSTEM_CPU_FRACTION = 0.01
SYSTEM_MEMORY_FRACTION = 0.02
SLICE_NS = 4_000_000
"""Length of a time slice in nanoseconds."""


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
        # Cores that quota and CPU list of the pod allow; infinite without a limit.
        self.cpu_limit = np.full(self.rows, np.inf)
        self.memory_bytes = np.zeros(self.rows, np.int64)
        self.page_cache_bytes = np.zeros(self.rows, np.int64)
        self.cpu_ns = np.zeros(self.rows, np.int64)
        self.periods = np.zeros(self.rows, np.float64)  # CFS periods since the pod got a quota
        self.throttled = np.zeros(self.rows, np.float64)  # CFS periods in which it was throttled
        self.instructions = np.zeros(self.rows, np.float64)  # Retired instructions
        self.wait_ns = np.zeros(self.rows, np.float64)  # Nanoseconds that its threads waited for a CPU
        self.slices = np.zeros(self.rows, np.float64)  # Number of time slices
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
        """Return its row. Its counters start at zero."""
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

    def limit_memory(self, row: int, limit_bytes: int) -> bool:
        """Whether the pod needs more memory than its limit. Then it uses the limit. A limit of 0 means none."""
        needs_more = 0 < limit_bytes < self.memory_bytes[row]
        if needs_more:
            self.memory_bytes[row] = limit_bytes
        return bool(needs_more)

    def remove(self, row: int) -> None:
        """Another pod can use the row."""
        self.cpu_request[row] = 0.0
        self.cpu_limit[row] = np.inf
        self.memory_bytes[row] = self.page_cache_bytes[row] = 0
        self.kind[row] = ProfileKind.CONSTANT
        self.level[row] = 0.0
        self.traces.pop(row, None)
        self.free.append(row)

    def profiles(self) -> ProfileTable:
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


class SimulatedMachines:
    """The machines of all simulated nodes of a process.

    Args:
        start_seconds: Simulated time at which the machines start.

    Raises:
        ValueError: Two nodes have the same name.
    """

    def __init__(self, nodes: Iterable[SimulatedNode], *, start_seconds: float = 0.0) -> None:
        self.nodes = tuple(nodes)
        self._index = {node.name: index for index, node in enumerate(self.nodes)}
        if len(self._index) != len(self.nodes):
            raise ValueError("simulated nodes: names must differ")
        count = len(self.nodes)
        self._now_seconds = start_seconds
        self._capacity = np.array([node.cpu_milli / 1000 for node in self.nodes], np.float64)
        self._memory = np.array([node.memory_bytes for node in self.nodes], np.int64)
        self._system_memory = (self._memory * SYSTEM_MEMORY_FRACTION).astype(np.int64)
        self._busy_ns = np.zeros(count, np.int64)
        self._be_ns = np.zeros(count, np.int64)
        self._be_periods = np.zeros(count, np.float64)
        self._be_throttled = np.zeros(count, np.float64)
        self.be_limit_cores = np.full(count, np.inf)
        self.ls_pressure = np.zeros((len(WINDOWS_SECONDS), count))
        self.be_pressure = np.zeros((len(WINDOWS_SECONDS), count))
        self.ls_stalled_us = np.zeros(count)
        self.be_stalled_us = np.zeros(count)
        self.slowdown = np.ones(count)
        self.ls_load = self.be_load = 1.0
        """Factors on the CPU usage of profiles of latency-sensitive and best-effort pods."""
        self.pods = PodColumns()
        self._snapshot: Snapshot | None = None

    @property
    def now_seconds(self) -> float:
        """Simulated time up to which the machines have advanced."""
        return self._now_seconds

    def index_of(self, node: str) -> int:
        """Raises KeyError: The node is not simulated."""
        return self._index[node]

    def advance(self, now_seconds: float) -> None:
        """Advance all machines to a simulated time in seconds: pods use CPU, and counters grow.

        No-op if it is not later. Values that were written since the last call apply to the whole interval.
        """
        length = now_seconds - self._now_seconds
        if length <= 0:
            return
        pods, nodes = self.pods, len(self.nodes)
        load = np.where(pods.is_best_effort, self.be_load, self.ls_load)
        asked = mean_fractions(pods.profiles(), self._now_seconds, now_seconds) * pods.cpu_request * load
        wanted = np.minimum(asked, pods.cpu_limit)
        system = self._capacity * SYSTEM_CPU_FRACTION
        shares = share_cpu(
            wanted,
            pods.node,
            pods.is_best_effort,
            capacity=self._capacity,
            system=system,
            be_limit=self.be_limit_cores,
        )
        used_ns = np.floor(shares.used * (length * NANOSECONDS))
        be_ns = sum_by_node(np.where(pods.is_best_effort, used_ns, 0.0), pods.node, nodes)
        all_ns = sum_by_node(used_ns, pods.node, nodes)
        pods.cpu_ns += used_ns.astype(np.int64)
        self._be_ns += be_ns.astype(np.int64)
        self._busy_ns += (all_ns + np.floor(system * (length * NANOSECONDS))).astype(np.int64)
        periods = length / PERIOD_SECONDS
        self._be_periods += np.where(np.isfinite(self.be_limit_cores), periods, 0.0)
        self._be_throttled += np.where(shares.be_throttled, periods, 0.0)
        pods.periods += np.where(np.isfinite(pods.cpu_limit), periods, 0.0)
        pods.throttled += np.where(asked > pods.cpu_limit, periods, 0.0)
        be_wanted = sum_by_node(np.where(pods.is_best_effort, asked, 0.0), pods.node, nodes)
        self._interfere(all_ns / (length * NANOSECONDS) + system, shares.be_used, be_wanted, used_ns, length)
        self._now_seconds = now_seconds
        self._snapshot = None

    def _interfere(self, used: Floats, be_used: Floats, be_wanted: Floats, used_ns: Floats, length: float) -> None:
        """Cores by node have the shape (N,), `used_ns` by pod (S,); `length` is the seconds of the step."""
        pods = self.pods
        step = interference(self._capacity, used, be_used, be_wanted)
        self.ls_pressure = running_averages(self.ls_pressure, step.ls_pressure, length)
        self.be_pressure = running_averages(self.be_pressure, step.be_pressure, length)
        self.ls_stalled_us += step.ls_pressure * length * 1e6
        self.be_stalled_us += step.be_pressure * length * 1e6
        self.slowdown = step.slowdown
        cpi = np.where(pods.is_best_effort, 1.0, step.cpi[pods.node])
        pods.instructions += used_ns / NANOSECONDS * CYCLES_PER_SECOND / cpi
        slices = used_ns / SLICE_NS
        delay_ms = np.where(pods.is_best_effort, step.delay_ms[pods.node] * 4, step.delay_ms[pods.node])
        pods.slices += slices
        pods.wait_ns += slices * delay_ms * 1e6

    def changed(self) -> None:
        """Drop the cached result of `snapshot`, because pods started or ended."""
        self._snapshot = None

    def snapshot(self) -> Snapshot:
        """Return the counters of all machines and pods at this moment; the result is cached until something changes."""
        if self._snapshot is None:
            pods, nodes = self.pods, len(self.nodes)
            memory = sum_by_node(pods.memory_bytes.astype(np.float64), pods.node, nodes).astype(np.int64)
            cache = sum_by_node(pods.page_cache_bytes.astype(np.float64), pods.node, nodes).astype(np.int64)
            used = np.minimum(memory + self._system_memory, self._memory)
            self._snapshot = Snapshot(
                at_ns=int(self._now_seconds * NANOSECONDS),
                pod_cpu_ns=pods.cpu_ns.tolist(),
                pod_memory=pods.memory_bytes.tolist(),
                pod_page_cache=pods.page_cache_bytes.tolist(),
                pod_periods=pods.periods.astype(np.int64).tolist(),
                pod_throttled=pods.throttled.astype(np.int64).tolist(),
                node_busy_ns=self._busy_ns.tolist(),
                node_memory=used.tolist(),
                node_page_cache=np.minimum(cache, self._memory - used).tolist(),
                be_cpu_ns=self._be_ns.tolist(),
                be_periods=self._be_periods.astype(np.int64).tolist(),
                be_throttled=self._be_throttled.astype(np.int64).tolist(),
            )
        return self._snapshot
