"""A rolling restart of every service while 200 pods are submitted each second: lost pods, and how long pods wait.

Two managers, two schedulers, two deschedulers, a projector, and agents of 100 simulated nodes are stopped by SIGTERM
and started again, one after the other. A pod waits from the moment at which its request was due until its placement is
in the log, also while no manager answers.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from bench.options import BenchOptions
from bench.results import Better, Result
from support.embedded_stack import var_folder
from support.rolling_restart import Outcome, doubled_stack, outcome_of, services_of

PODS_PER_SECOND = 200
NODES = 100
STEADY_SECONDS = 5.0
READY_SECONDS = 120.0


async def _measure(var: Path, pods_per_second: float) -> tuple[Outcome, list[str], float]:
    """Return the outcome, the restarted services with the time that each took, and the time of all restarts."""
    async with doubled_stack(var, nodes=NODES) as (supervisor, processes, clients):
        took: list[str] = []
        async with clients.submitting(pods_per_second):
            await asyncio.sleep(STEADY_SECONDS)
            began = time.monotonic()
            for name in services_of(processes):
                before = time.monotonic()
                await supervisor.restart(name, seconds=READY_SECONDS)
                took.append(f"{name} {time.monotonic() - before:.1f} s")
            restarted = time.monotonic() - began
            await asyncio.sleep(STEADY_SECONDS)
        return await outcome_of(var, processes, clients), took, restarted


def measure(options: BenchOptions) -> Iterator[Result]:
    """Lost pods, pods that were placed twice, the waits, and whether the folds agree."""
    rate = PODS_PER_SECOND * options.scale
    with var_folder() as var:
        outcome, took, restarted = asyncio.run(_measure(var, rate))
    broken = outcome.findings.sentences()
    title = f"rolling restart at {rate:g} pods/s"
    yield Result(
        name=f"{title}: lost pods",
        value=len(outcome.lost),
        unit="pods",
        target=0,
        better=Better.LOWER,
        note=f"{outcome.submitted:,} submitted; {len(took)} restarts in {restarted:.0f} s: {', '.join(took)}",
    )
    yield Result(
        name=f"{title}: broken rules of the log, such as pods placed twice",
        value=len(broken),
        unit="",
        target=0,
        better=Better.LOWER,
        note="; ".join(broken[:3]),
    )
    yield Result(
        name=f"{title}: submitted to placed, p99",
        value=outcome.quantile(0.99),
        unit="s",
        target=3,
        better=Better.LOWER,
        note=f"p50 {outcome.quantile(0.5):.3f} s, longest {outcome.quantile(1):.2f} s",
    )
    yield Result(
        name=f"{title}: koord verify finds manager, projector and log equal",
        value=float(outcome.verification.equal),
        unit="",
        target=1,
        note=f"position {outcome.verification.position:,}",
    )
