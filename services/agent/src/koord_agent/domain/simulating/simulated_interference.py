"""Interference of simulated pods: what best-effort work on a node costs its latency-sensitive pods.

    u  used cores / capacity, b  best-effort cores / capacity, both over one step

    cpu pressure of latency-sensitive pods   p = min(max(u - 0.6, 0) / 0.4, 1)^2           share of time some task
    waits
    scheduling delay, ms                     d = 0.05 + 8 p
    cycles per instruction                   c = 1 + 0.8 b                                 shared caches and bandwidth
    slowdown of a request                    s = c (1 + 3 p)
    cpu pressure of best effort              1 - used / wanted

A node that is full of best-effort work (b = 0.6, u = 1) serves latency-sensitive requests about six times slower than
without it. Suppression of best effort to u = 0.65 reduces that to about 1.3. The shape (quadratic in load above a knee,
linear in the share of cache-hungry work) is that of real nodes; the constants are invented.
"""

import math
from dataclasses import dataclass

import numpy as np

from koord_agent.domain.simulating.simulation import Floats

KNEE = 0.6
MIN_DELAY_MS = 0.05
DELAY_AT_FULL_PRESSURE_MS = 8.0
CACHE_COST = 0.8
QUEUE_COST = 3.0
CYCLES_PER_SECOND = 2.5e9
WINDOWS_SECONDS = (10.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """Interference during one step; all arrays have the shape (N,), by node.

    Attributes:
        ls_pressure: Share of time in which a latency-sensitive task waited for a CPU, 0..1.
        be_pressure: Share of time in which a best-effort task waited for a CPU, 0..1.
        delay_ms: Mean wait of a latency-sensitive thread per time slice.
        cpi: Cycles per instruction of latency-sensitive pods.
        slowdown: Factor by which requests of latency-sensitive pods take longer; 1: undisturbed.
    """

    ls_pressure: Floats
    be_pressure: Floats
    delay_ms: Floats
    cpi: Floats
    slowdown: Floats


def interference(capacity: Floats, used: Floats, be_used: Floats, be_wanted: Floats) -> Interference:
    """Return how much pods disturb each other during a step, by the formulas of this module.

    All arrays have the shape (N,).

    Args:
        capacity: Cores of each node.
        used: Cores in use.
        be_used: Cores that best-effort pods use.
        be_wanted: Cores that best-effort pods would use without a limit.
    """
    load = np.clip(used / capacity, 0.0, 1.0)
    pressure = np.minimum(np.maximum(load - KNEE, 0.0) / (1.0 - KNEE), 1.0) ** 2
    cpi = 1.0 + CACHE_COST * np.clip(be_used / capacity, 0.0, 1.0)
    short = np.where(be_wanted > 0.0, 1.0 - be_used / np.where(be_wanted > 0.0, be_wanted, 1.0), 0.0)
    return Interference(
        ls_pressure=pressure,
        be_pressure=np.clip(short, 0.0, 1.0),
        delay_ms=MIN_DELAY_MS + DELAY_AT_FULL_PRESSURE_MS * pressure,
        cpi=cpi,
        slowdown=cpi * (1.0 + QUEUE_COST * pressure),
    )


def running_averages(averages: Floats, share: Floats, seconds: float) -> Floats:
    """Return the PSI averages after a step, shape (3, N), over 10, 60 and 300 s, as in the kernel.

    Args:
        averages: Averages before the step, (3, N).
        share: Pressure during the step, (N,).
        seconds: Length of the step.
    """
    kept = np.array([[math.exp(-seconds / window)] for window in WINDOWS_SECONDS])
    return averages * kept + share[np.newaxis, :] * (1.0 - kept)
