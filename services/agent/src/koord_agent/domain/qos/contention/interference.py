"""Signals of disturbed pods, and the state machine that all signals use.

A signal is a number, or None without activity or if a counter fell. `Contention` turns signals into the states normal
and contended, with a threshold and a number of consecutive values. Signals of waiting are in
`domain.kernel.sched_delay` and
`domain.kernel.pressure`.

Source: agent spec, 18. Vectors: interference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from koordcore.protocol.lenient_json import convert

LEAVE_FRACTION = 0.8


class Signal(StrEnum):
    """A measured value of a pod that shows whether the pod is disturbed.

    PSI of cpu, memory and io; scheduling delay; memory allocation stall; disk wait; TCP retransmissions; cycles per
    instruction.
    """

    PSI_CPU = "psi-cpu"
    PSI_MEM = "psi-mem"
    PSI_IO = "psi-io"
    SCHED_DELAY = "sched-delay"
    MEM_ALLOC = "mem-alloc"
    DISK_IO = "disk-io"
    NETWORK = "network"
    CPI = "cpi"


class State(StrEnum):
    """State of a pod for one signal: normal or contended."""

    NORMAL = "normal"
    CONTENDED = "contended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Settings of a signal of contention: the numbers of consecutive values after which its state changes.

    Attributes:
        enter_samples: Number of values at or above the threshold after which the signal is contended.
        leave_samples: Number of values below 0.8 of the threshold after which the signal is normal again.
    """

    enter_samples: int = 3
    leave_samples: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """State of one signal of one pod.

    Attributes:
        state: Normal or contended.
        above: Number of consecutive values at or above the threshold, while normal.
        below: Number of consecutive values below 0.8 of the threshold, while contended.
    """

    state: State = State.NORMAL
    above: int = 0
    below: int = 0

    def after(self, value: float | None, threshold: float, patience: Patience = Patience()) -> "Contention":
        """Return the state after one more value.

        The state becomes contended after `enter_samples` consecutive values at or above the threshold, and normal after
        `leave_samples` consecutive values below 0.8 of it. A missing value changes nothing.
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
    """Return the milliseconds per disk request between two readings; None if there was no request.

    Args:
        previous: Reads, ms reading, writes, ms writing of the earlier reading, as in /proc/diskstats.
        current: The four numbers of the later reading.
    """
    reads, read_ms, writes, write_ms = (now - then for then, now in zip(previous, current, strict=True))
    if min(reads, read_ms, writes, write_ms) < 0 or reads + writes <= 0:
        return None
    return (read_ms + write_ms) / (reads + writes)


def retransmit_ratio(previous: Sequence[int], current: Sequence[int]) -> float | None:
    """Return the share of TCP segments that were retransmitted between two readings; None if none was sent.

    Args:
        previous: Segments out and segments retransmitted of the earlier reading, as in /proc/<pid>/net/snmp.
        current: The two numbers of the later reading.
    """
    out, again = current[0] - previous[0], current[1] - previous[1]
    if out <= 0 or again < 0:
        return None
    return again / out


class PsiSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object `psi` of the interference settings in the NodeSLO: detection by pressure (PSI).

    Attributes:
        cpu_some: Threshold of the CPU pressure in percent (avg10 of `some`).
        mem_full: Threshold of the memory pressure in percent (avg10 of `full`).
        io_full: Threshold of the IO pressure in percent (avg10 of `full`).
        enter_samples: Consecutive values at or above the threshold that make a pod contended.
        leave_samples: Consecutive values below 0.8 of the threshold that make it normal.
        act: Whether contentions change other strategies; otherwise they are only reported.
    """

    cpu_some: float = 20.0
    mem_full: float = 5.0
    io_full: float = 10.0
    enter_samples: int = 3
    leave_samples: int = 3
    act: bool = False

    @property
    def patience(self) -> Patience:
        """Numbers of consecutive values that change the state, each at least 1."""
        return Patience(enter_samples=max(self.enter_samples, 1), leave_samples=max(self.leave_samples, 1))

    def threshold(self, signal: Signal) -> float | None:
        """Return the threshold of a PSI signal; None for any other signal."""
        return {Signal.PSI_CPU: self.cpu_some, Signal.PSI_MEM: self.mem_full, Signal.PSI_IO: self.io_full}.get(signal)


class CpiSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object `cpi` of the interference settings in the NodeSLO: detection by cycles per instruction.

    Attributes:
        enable: Whether it is on.
        sigma: Number of standard deviations above the mean from which a sample is an outlier.
        min_usage: Lowest CPU usage in cores at which a sample counts.
        outliers: Number of outliers within the window that make an anomaly.
        window_seconds: Length of this window.
        correlation_seconds: Length of the window in which suspects are compared with the victim.
        correlation: Lowest correlation of a suspect that is capped.
        cap_seconds: Duration of a cap.
    """

    enable: bool = False
    sigma: float = 2.0
    min_usage: float = 0.25
    outliers: int = 3
    window_seconds: int = 300
    correlation_seconds: int = 600
    correlation: float = 0.35
    cap_seconds: int = 300


class InterferenceSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object `extensions.interference` of the NodeSLO: how disturbed pods are detected.

    Attributes:
        enable: Whether detection is on.
        psi: Detection by pressure.
        cpi: Detection by cycles per instruction.
        sched_delay_ms: Threshold of the scheduling delay, which is only reported; None: not checked.
        mem_alloc_ratio: Threshold of the memory allocation stall, which is only reported; None: not checked.
        disk_await_ms: Threshold of the disk wait, which is only reported; None: not checked.
        retransmit_ratio: Threshold of TCP retransmissions, which are only reported; None: not checked.
    """

    enable: bool = False
    psi: PsiSettings = PsiSettings()
    cpi: CpiSettings = CpiSettings()
    sched_delay_ms: float | None = 5.0
    mem_alloc_ratio: float | None = 0.1
    disk_await_ms: float | None = None
    retransmit_ratio: float | None = None

    def threshold(self, signal: Signal) -> float | None:
        """Return the threshold of a signal; None if the signal is not checked."""
        others = {
            Signal.SCHED_DELAY: self.sched_delay_ms,
            Signal.MEM_ALLOC: self.mem_alloc_ratio,
            Signal.DISK_IO: self.disk_await_ms,
            Signal.NETWORK: self.retransmit_ratio,
        }
        return others[signal] if signal in others else self.psi.threshold(signal)


def interference_settings(slo: Mapping[str, Any]) -> InterferenceSettings:
    """Return the interference settings of a NodeSLO (JSON with defaults). If they are missing, detection is off.

    Raises:
        InvalidInput: A field has a wrong type.
    """
    extensions: Mapping[str, Any] = slo.get("extensions") or {}
    return convert(extensions.get("interference"), InterferenceSettings)
