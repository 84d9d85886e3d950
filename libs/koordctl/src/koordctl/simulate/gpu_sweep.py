"""Many runs of the GPU benchmark, in parallel processes, and their means.

Next module to read: `gpu_report`.

Source: gpu-fragmentation spec, 5.2.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, pstdev
from typing import NamedTuple

from koordcore.fragmentation.policies import Policy, PolicyName

from koordctl.simulate.gpu_run import GpuTrace, Load, Outcome, policy_for, read_trace, simulate

_NICENESS = 10


class Run(NamedTuple):
    workload: str
    policy: PolicyName
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Each workload under each policy with each seed."""

    folder: Path  # Folder of the traces
    workloads: Sequence[str]  # Names of the workloads
    policies: Sequence[PolicyName]
    seeds: Sequence[int]
    load: Load  # Number of pods that arrive in each run

    @property
    def runs(self) -> list[Run]:
        """In the order of the results."""
        return [
            Run(workload, policy, seed)
            for workload in self.workloads
            for policy in self.policies
            for seed in self.seeds
        ]


class Summary(NamedTuple):
    """The mean allocation of one policy on one workload at one percentage of arrivals, over all seeds."""

    workload: str  # Name of the workload
    policy: PolicyName
    arrived_pct: int  # Percentage of the capacity that has arrived
    alloc_mean: float  # Mean of the allocation, in percent of the capacity
    alloc_sd: float  # Standard deviation of the population of seeds
    n: int  # Number of runs that reached this percentage


def sweep(asked: Sweep, jobs: int, done: Callable[[], None]) -> dict[Run, Outcome]:
    """Make all runs in `jobs` processes of low priority, and return their outcomes in the order of `asked.runs`.

    Args:
        done: Called after each run.

    Raises:
        InvalidTrace: A trace cannot be read or is not valid.
    """
    for workload in asked.workloads:
        read_trace(asked.folder, workload)
    # A run has many small products of arrays: more threads make it slower. A new process reads this when it starts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    found: dict[Run, Outcome] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start) as pool:
        pending = {pool.submit(_outcome, asked.folder, run, asked.load): run for run in asked.runs}
        for future in as_completed(pending):
            found[pending[future]] = future.result()
            done()
    return {run: found[run] for run in asked.runs}


def summaries(outcomes: dict[Run, Outcome]) -> list[Summary]:
    """Return the mean and the standard deviation over the seeds of the allocated percentage of the GPUs.

    One `Summary` per workload, policy and percentage of arrivals, in the order in which workload and policy first
    occur, then ascending by arrivals.
    """
    values: dict[tuple[str, PolicyName, int], list[float]] = {}
    for run, outcome in outcomes.items():
        for point in outcome.points:
            values.setdefault((run.workload, run.policy, point.arrived_pct), []).append(point.alloc_pct)
    groups = dict.fromkeys((run.workload, run.policy) for run in outcomes)
    position = {group: index for index, group in enumerate(groups)}
    keys = sorted(values, key=lambda key: (position[key[0], key[1]], key[2]))
    return [Summary(*key, mean(values[key]), pstdev(values[key]), len(values[key])) for key in keys]


def _start() -> None:
    """Give way to other work of the machine."""
    os.nice(_NICENESS)


@lru_cache(maxsize=1)
def _trace(folder: Path, workload: str) -> GpuTrace:
    return read_trace(folder, workload)


@lru_cache(maxsize=1)
def _policy(folder: Path, workload: str, name: PolicyName, load: Load) -> Policy:
    return policy_for(_trace(folder, workload), name, load)


def _outcome(folder: Path, run: Run, load: Load) -> Outcome:
    policy = _policy(folder, run.workload, run.policy, load)
    return simulate(_trace(folder, run.workload), run.policy, run.seed, load, policy)
