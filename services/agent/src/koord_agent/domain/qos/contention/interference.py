"""Is somebody disturbed, and by how much: signals from kernel counters, and one state machine for all of them.

Each signal gives a value or None (no activity, or a counter that went back). `Contention` turns values into the states
normal and contended with a threshold and some patience. Waiting for CPU and memory is computed in `domain.sched_delay`
and `domain.pressure`. Source: agent spec, 18; vectors interference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from koordcore.protocol.lenient_json import convert

LEAVE_FRACTION = 0.8


class Signal(StrEnum):
    """What is looked at."""

    PSI_CPU = "psi-cpu"
    PSI_MEM = "psi-mem"
    PSI_IO = "psi-io"
    SCHED_DELAY = "sched-delay"
    MEM_ALLOC = "mem-alloc"
    DISK_IO = "disk-io"
    NETWORK = "network"
    CPI = "cpi"


class State(StrEnum):
    """Whether an object is disturbed in one respect."""

    NORMAL = "normal"
    CONTENDED = "contended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many values in a row change the state."""

    enter_samples: int = 3
    leave_samples: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """State of one signal of one object, with the values in a row that speak for the other state."""

    state: State = State.NORMAL
    above: int = 0
    below: int = 0

    def after(self, value: float | None, threshold: float, patience: Patience = Patience()) -> "Contention":
        """Return the state after one more value.

        Contended after `enter_samples` values in a row at or above the threshold, normal again after `leave_samples` in
        a row below 0.8 of it. A missing value changes nothing.
        """
        if value is None:
            return self
        if self.state is State.NORMAL:
            above = self.above + 1 if value >= threshold else 0
            if above >= patience.enter_samples:
                return Contention(state=State.CONTENDED)
            return Contention(above=above)
        below = self.below + 1 if value < LEAVE_FRACTION * threshold else 0
        if below >= patience.leave_samples:
            return Contention()
        return Contention(state=State.CONTENDED, below=below)


def disk_await_ms(previous: Sequence[int], current: Sequence[int]) -> float | None:
    """Return the milliseconds per disk request.

    Args:
        previous: Reads, ms reading, writes, ms writing, as in /proc/diskstats.
        current: Reads, ms reading, writes, ms writing, as in /proc/diskstats.
    """
    reads, read_ms, writes, write_ms = (now - then for then, now in zip(previous, current, strict=True))
    if min(reads, read_ms, writes, write_ms) < 0 or reads + writes <= 0:
        return None
    return (read_ms + write_ms) / (reads + writes)


def retransmit_ratio(previous: Sequence[int], current: Sequence[int]) -> float | None:
    """Share of TCP segments that were sent again.

    Args:
        previous: Segments out, segments retransmitted, as in /proc/<pid>/net/snmp.
        current: Segments out, segments retransmitted, as in /proc/<pid>/net/snmp.
    """
    out, again = current[0] - previous[0], current[1] - previous[1]
    if out <= 0 or again < 0:
        return None
    return again / out


class PsiSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`psi` of the interference settings: thresholds in percent (avg10). Act = whether contention changes limits."""

    cpu_some: float = 20.0
    mem_full: float = 5.0
    io_full: float = 10.0
    enter_samples: int = 3
    leave_samples: int = 3
    act: bool = False

    @property
    def patience(self) -> Patience:
        """As the state machine takes it."""
        return Patience(enter_samples=max(self.enter_samples, 1), leave_samples=max(self.leave_samples, 1))

    def threshold(self, signal: Signal) -> float | None:
        """Return the threshold of a PSI signal. None for another one."""
        return {Signal.PSI_CPU: self.cpu_some, Signal.PSI_MEM: self.mem_full, Signal.PSI_IO: self.io_full}.get(signal)


class CpiSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`cpi` of the interference settings."""

    enable: bool = False
    sigma: float = 2.0
    min_usage: float = 0.25
    outliers: int = 3
    window_seconds: int = 300
    correlation_seconds: int = 600
    correlation: float = 0.35
    cap_seconds: int = 300


class InterferenceSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """NodeSLO `extensions.interference`.

    Attributes:
        sched_delay_ms: Thresholds of signals that are only reported. None means not judged.
        mem_alloc_ratio: Thresholds of signals that are only reported. None means not judged.
        disk_await_ms: Thresholds of signals that are only reported. None means not judged.
        retransmit_ratio: Thresholds of signals that are only reported. None means not judged.
    """

    enable: bool = False
    psi: PsiSettings = PsiSettings()
    cpi: CpiSettings = CpiSettings()
    sched_delay_ms: float | None = 5.0
    mem_alloc_ratio: float | None = 0.1
    disk_await_ms: float | None = None
    retransmit_ratio: float | None = None

    def threshold(self, signal: Signal) -> float | None:
        """Return the from which value on a signal speaks for a contention. None means it is not judged here."""
        others = {
            Signal.SCHED_DELAY: self.sched_delay_ms,
            Signal.MEM_ALLOC: self.mem_alloc_ratio,
            Signal.DISK_IO: self.disk_await_ms,
            Signal.NETWORK: self.retransmit_ratio,
        }
        return others[signal] if signal in others else self.psi.threshold(signal)


def interference_settings(slo: Mapping[str, Any]) -> InterferenceSettings:
    """Return the settings of an effective NodeSLO. Defaults (switched off) without any.

    Raises:
        InvalidInput: A field of a wrong type.
    """
    extensions: Mapping[str, Any] = slo.get("extensions") or {}
    return convert(extensions.get("interference"), InterferenceSettings)
