"""Usage and interference of simulated pods: pure functions of profile and simulated time, for many pods at once.

`machines` keeps the arrays and calls `mean_fractions` and `share_cpu` once per cycle for all nodes together. There is
no random state: two runs over the same times give the same usage. What best-effort work costs latency-sensitive pods:

    u  used cores / capacity, b  best-effort cores / capacity, both over one step

    cpu pressure of latency-sensitive pods   p = min(max(u - 0.6, 0) / 0.4, 1)^2     share of time some task waits
    scheduling delay, ms                     d = 0.05 + 8 p
    cycles per instruction                   c = 1 + 0.8 b                           shared caches and bandwidth
    slowdown of a request                    s = c (1 + 3 p)
    cpu pressure of best effort              1 - used / wanted

A node that is full of best-effort work (b = 0.6, u = 1) serves latency-sensitive requests about six times slower than
without it. Suppression of best effort to u = 0.65 reduces that to about 1.3. The shape (quadratic in load above a knee,
linear in the share of cache-hungry work) is that of real nodes; the constants are invented.
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import msgspec
import numpy as np
from koordcore.values import codec
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.int64]

DAY_SECONDS = 86_400.0
MAX_FRACTION = 4.0
SAMPLE_STEP_SECONDS = 15.0
MAX_SAMPLES = 8
ROUNDING_GUARD = 1.0 - 1e-12
"""Factor that keeps the sum of rounded shares below their cap."""
KNEE = 0.6
MIN_DELAY_MS = 0.05
DELAY_AT_FULL_PRESSURE_MS = 8.0
CACHE_COST = 0.8
QUEUE_COST = 3.0
CYCLES_PER_SECOND = 2.5e9
WINDOWS_SECONDS = (10.0, 60.0, 300.0)


class ProfileKind(IntEnum):
    """Curve of a simulated pod's usage over time: constant, diurnal, bursty, or trace (given points)."""

    CONSTANT = 0
    DIURNAL = 1
    BURSTY = 2
    TRACE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageProfile:
    """Usage of one simulated pod over time, as a fraction of its request. Memory is constant: `memory_fraction`.

    constant  level
    diurnal   level + swing * sin(2 pi (t - phase) / period)
    bursty    level, and swing during one burst of duty * period per period, its place drawn from (seed, period no.)
    trace     linear between points (seconds, fraction); the first and last value hold outside
    """

    kind: ProfileKind
    level: float = 0.0
    swing: float = 0.0
    period_seconds: float = DAY_SECONDS
    phase_seconds: float = 0.0
    duty: float = 0.0
    seed: int = 0
    points: tuple[tuple[float, float], ...] = ()
    memory_fraction: float = 0.6


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """JSON object in the simulation annotation of a pod, whose fields become a `UsageProfile`."""

    profile: str
    mean: float = 0.5
    amplitude: float = 0.0
    period: str | float = "24h"
    phase: str | float = "0s"
    base: float = 0.1
    burst: float = 1.0
    duty: float = 0.1
    seed: int = 0
    points: list[tuple[float, float]] = []
    memory: float | None = None


def default_profile(uid: str, *, is_best_effort: bool) -> UsageProfile:
    """Return the profile of a pod without an annotation.

    Best-effort pods stay near their request, with a level that depends on the UID (up to 5 %). Other pods follow the
    day, with a peak that depends on the UID (up to two hours).
    """
    spread = zlib.crc32(uid.encode()) / 0xFFFFFFFF
    if is_best_effort:
        return UsageProfile(kind=ProfileKind.CONSTANT, level=0.9 + 0.1 * spread, memory_fraction=0.85)
    return UsageProfile(
        kind=ProfileKind.DIURNAL,
        level=0.45,
        swing=0.25,
        phase_seconds=(spread * 4 - 2) * 3600,
        memory_fraction=0.5 + 0.2 * spread,
    )


def parse_profile(text: str, uid: str, *, is_best_effort: bool) -> UsageProfile:
    """Return the profile in the simulation annotation of a pod; "" gives `default_profile`.

    Raises:
        InvalidInput: The annotation is invalid. The error has field, rule and value.
    """
    default = default_profile(uid, is_best_effort=is_best_effort)
    if not text:
        return default
    try:
        written = codec.decode(text, _Written)
    except codec.DecodeError as error:
        raise InvalidInput(f"a usage profile ({error})", text) from error
    memory = default.memory_fraction if written.memory is None else _within("memory", written.memory, 0, MAX_FRACTION)
    period = _seconds("period", written.period)
    if period <= 0:
        raise InvalidInput("longer than 0s", written.period, "period")
    match written.profile:
        case "constant":
            level = _within("mean", written.mean, 0, MAX_FRACTION)
            return UsageProfile(kind=ProfileKind.CONSTANT, level=level, memory_fraction=memory)
        case "diurnal":
            return UsageProfile(
                kind=ProfileKind.DIURNAL,
                level=_within("mean", written.mean, 0, MAX_FRACTION),
                swing=_within("amplitude", written.amplitude, 0, MAX_FRACTION),
                period_seconds=period,
                phase_seconds=_seconds("phase", written.phase),
                memory_fraction=memory,
            )
        case "bursty":
            return UsageProfile(
                kind=ProfileKind.BURSTY,
                level=_within("base", written.base, 0, MAX_FRACTION),
                swing=_within("burst", written.burst, 0, MAX_FRACTION),
                duty=_within("duty", written.duty, 0, 1),
                period_seconds=period,
                phase_seconds=_seconds("phase", written.phase),
                seed=(written.seed ^ zlib.crc32(uid.encode())) & 0xFFFFFFFFFFFFFFFF,
                memory_fraction=memory,
            )
        case "trace":
            if not written.points or written.points != sorted(written.points):
                raise InvalidInput("a non-empty list of [seconds, fraction] in time order", written.points, "points")
            for _, fraction in written.points:
                _within("points", fraction, 0, MAX_FRACTION)
            return UsageProfile(kind=ProfileKind.TRACE, points=tuple(written.points), memory_fraction=memory)
        case other:
            raise InvalidInput("constant, diurnal, bursty or trace", other, "profile")


def _within(field: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise InvalidInput(f"{low}..{high}", value, field)
    return value


def _seconds(field: str, value: str | float) -> float:
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except InvalidInput as error:
            raise error.at(field) from error
    if not math.isfinite(value):
        raise InvalidInput("a finite number of seconds", value, field)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTable:
    """Usage profiles of S pods as columns, each of shape (S,)."""

    kind: NDArray[np.int8]
    level: Floats
    swing: Floats
    period_seconds: Floats
    phase_seconds: Floats
    duty: Floats
    seed: NDArray[np.uint64]
    traces: Mapping[int, tuple[Floats, Floats]]  # Position of a pod -> (seconds, fractions), for pods of kind TRACE


def fractions(table: ProfileTable, at_seconds: float) -> Floats:
    """Return the CPU usage of each pod at one moment as a fraction of its request, shape (S,), from 0 to 4."""
    shifted = at_seconds - table.phase_seconds
    result = table.level.copy()
    diurnal = table.kind == ProfileKind.DIURNAL
    if diurnal.any():
        angle = (2 * math.pi) * shifted[diurnal] / table.period_seconds[diurnal]
        result[diurnal] += table.swing[diurnal] * np.sin(angle)
    bursty = table.kind == ProfileKind.BURSTY
    if bursty.any():
        cycles = shifted[bursty] / table.period_seconds[bursty]
        number = np.floor(cycles)
        start = unit_hash(table.seed[bursty], number) * (1 - table.duty[bursty])
        inside = cycles - number
        in_burst = (inside >= start) & (inside < start + table.duty[bursty])
        result[bursty] = np.where(in_burst, table.swing[bursty], table.level[bursty])
    for row, (times, values) in table.traces.items():
        result[row] = np.interp(at_seconds, times, values)
    return np.clip(result, 0.0, MAX_FRACTION)


def mean_fractions(table: ProfileTable, from_seconds: float, to_seconds: float) -> Floats:
    """Return the mean CPU usage of each pod over an interval as a fraction of its request, shape (S,).

    It is the mean of 1 to 8 evenly spaced moments, one per 15 s.
    """
    length = to_seconds - from_seconds
    count = min(max(math.ceil(length / SAMPLE_STEP_SECONDS), 1), MAX_SAMPLES)
    total = fractions(table, from_seconds + length * 0.5 / count)
    for step in range(1, count):
        total += fractions(table, from_seconds + length * (step + 0.5) / count)
    return total / count


def unit_hash(seed: NDArray[np.uint64], number: Floats) -> Floats:
    """Return a pseudo-random number in [0, 1) for (seed, number), shape (S,), with the splitmix64 finaliser."""
    x = seed + number.astype(np.int64).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) / float(1 << 53)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShares:
    """CPU that pods got, in cores."""

    used: Floats  # Cores by pod, (S,)
    be_used: Floats  # Cores of best-effort pods by node, (N,)
    be_throttled: Flags  # Whether best-effort pods wanted more than their limit, by node, (N,)


def share_cpu(
    wanted: Floats, node: Indices, is_best_effort: Flags, *, capacity: Floats, system: Floats, be_limit: Floats
) -> CpuShares:
    """Divide the CPU of each node: first the system, then latency-sensitive pods, then best effort up to its limit.

    Arrays are cores by pod (S,) or by node (N,), where `node` is the position of the pod's node. `be_limit` is infinite
    without a quota. If there is not enough CPU, pods of one class on one node are scaled by the same factor.
    """
    nodes = len(capacity)
    ls_wanted = sum_by_node(np.where(is_best_effort, 0.0, wanted), node, nodes)
    be_wanted = sum_by_node(np.where(is_best_effort, wanted, 0.0), node, nodes)
    left = np.maximum(capacity - system, 0.0)
    ls_scale = _scale(left, ls_wanted)
    left = np.maximum(left - ls_wanted * ls_scale, 0.0)
    be_cap = np.minimum(left, be_limit)
    be_scale = _scale(be_cap, be_wanted)
    return CpuShares(
        used=wanted * np.where(is_best_effort, be_scale[node], ls_scale[node]),
        be_used=be_wanted * be_scale,
        be_throttled=be_wanted > be_limit,
    )


def sum_by_node(values: Floats, node: Indices, nodes: int) -> Floats:
    """Sum a column of pods, shape (S,), for each node, shape (N,)."""
    return np.bincount(node, weights=values, minlength=nodes).astype(np.float64)


def _scale(available: Floats, wanted: Floats) -> Floats:
    """Return min(1, available / wanted), and 1 if nothing is wanted.

    It is slightly smaller, so that the sum of rounded shares never exceeds `available`.
    """
    short = wanted > available
    return np.where(short, available / np.where(short, wanted, 1.0) * ROUNDING_GUARD, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """Interference during one step; all arrays have the shape (N,), by node."""

    ls_pressure: Floats  # Share of time in which a latency-sensitive task waited for a CPU, 0..1
    be_pressure: Floats  # Share of time in which a best-effort task waited for a CPU, 0..1
    delay_ms: Floats  # Mean wait of a latency-sensitive thread per time slice
    cpi: Floats  # Cycles per instruction of latency-sensitive pods
    slowdown: Floats  # Factor by which requests of latency-sensitive pods take longer; 1: undisturbed


def interference(capacity: Floats, used: Floats, be_used: Floats, be_wanted: Floats) -> Interference:
    """By the formulas of this module. All arrays have the shape (N,) and are cores of each node.

    `be_wanted` without a limit.
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
    """
    kept = np.array([[math.exp(-seconds / window)] for window in WINDOWS_SECONDS])
    return averages * kept + share[np.newaxis, :] * (1.0 - kept)
