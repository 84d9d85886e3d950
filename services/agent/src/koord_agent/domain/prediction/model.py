"""One usage model: a CPU and a memory histogram in which old samples lose weight, and its checkpoint.

There is a model for each pod, for some priority classes, for the system and for the node. `training` decides which
samples go into which model. `reclaimable` computes reclaimable resources from the predictions.

Source: agent spec, 8.1, 8.3.
"""

import math
from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.values import codec
from koordcore.values.decaying_histogram import (
    DecayingHistogram,
    ExponentialBuckets,
    HistogramCheckpoint,
    HistogramOptions,
)

RATIO: Final = 1.05
EPSILON: Final = 1e-4
CPU_BUCKETS: Final = ExponentialBuckets(max_value=1024.0, first_bucket_size=0.025, ratio=RATIO)
MEMORY_BUCKETS: Final = ExponentialBuckets(max_value=2.0**41, first_bucket_size=5.0 * 2**20, ratio=RATIO)
CPU_HALF_LIFE_SECONDS: Final = 12 * 3600.0
MEMORY_HALF_LIFE_SECONDS: Final = 24 * 3600.0
FRACTIONS: Final = {"p60": 0.60, "p90": 0.90, "p95": 0.95, "p98": 0.98, "max": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """An amount of usage: cpu in milli-cores, memory in bytes."""

    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfLives:
    """Seconds after which a CPU or memory sample counts half as much."""

    cpu: float = CPU_HALF_LIFE_SECONDS
    memory: float = MEMORY_HALF_LIFE_SECONDS


class ModelCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    uid: str = msgspec.field(name="UID")
    cpu: HistogramCheckpoint = msgspec.field(name="CPU")
    memory: HistogramCheckpoint = msgspec.field(name="Memory")
    last_updated: float = msgspec.field(name="LastUpdated")  # Unix time of the last sample in seconds
    # Unix time of the first sample in seconds; None in checkpoints of older versions.
    learning_since: float | None = msgspec.field(default=None, name="LearningSince")


class UsageModel:
    """The learned usage of one pod, priority class or the node: histograms of CPU and memory.

    Only one task may use it.
    """

    __slots__ = ("cpu", "learning_since", "memory", "updated")

    def __init__(self, half_lives: HalfLives = HalfLives()) -> None:
        self.cpu = DecayingHistogram(
            HistogramOptions(buckets=CPU_BUCKETS, epsilon=EPSILON, half_life_seconds=half_lives.cpu)
        )
        self.memory = DecayingHistogram(
            HistogramOptions(buckets=MEMORY_BUCKETS, epsilon=EPSILON, half_life_seconds=half_lives.memory)
        )
        self.updated = 0.0
        self.learning_since = math.inf

    def add(self, cpu_cores: float, memory_bytes: float, at: float) -> None:
        """`at` is a Unix time in seconds."""
        self.cpu.add(cpu_cores, 1.0, at)
        self.memory.add(memory_bytes, 1.0, at)
        self.updated = at
        self.learning_since = min(self.learning_since, at)

    def percentile(self, name: str) -> Peak:
        """The usage that was not exceeded for a share of the time: `p60`, `p90`, `p95`, `p98` or `max`."""
        fraction = FRACTIONS[name]
        return Peak(
            cpu_milli=int(self.cpu.percentile(fraction) * 1000), memory_bytes=int(self.memory.percentile(fraction))
        )

    def peak(self) -> Peak:
        """Return the predicted peak: p95 of CPU, and p98 of memory because memory cannot be taken back."""
        return Peak(
            cpu_milli=int(self.cpu.percentile(FRACTIONS["p95"]) * 1000),
            memory_bytes=int(self.memory.percentile(FRACTIONS["p98"])),
        )

    def checkpoint(self, uid: str) -> bytes:
        return codec.encode(
            ModelCheckpoint(
                uid=uid,
                cpu=self.cpu.checkpoint(),
                memory=self.memory.checkpoint(),
                last_updated=self.updated,
                learning_since=min(self.learning_since, self.updated),
            )
        )


def model_of_checkpoint(data: bytes, uid: str, half_lives: HalfLives) -> UsageModel:
    """Raises codec.DecodeError: A field has a wrong type.

    Raises InvalidInput: A histogram has invalid weights or buckets. Raises ValueError: The checkpoint belongs to
    another UID.
    """
    kept = codec.decode(data, ModelCheckpoint)
    if kept.uid != uid or not math.isfinite(kept.last_updated):
        raise ValueError(f"checkpoint of {kept.uid!r}, want {uid!r}")
    model = UsageModel(half_lives)
    model.cpu.load(kept.cpu)
    model.memory.load(kept.memory)
    model.updated = kept.last_updated
    model.learning_since = kept.last_updated if kept.learning_since is None else kept.learning_since
    return model
