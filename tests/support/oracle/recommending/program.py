"""The Vertical Pod Autoscaler's own code as a judge: the program of tests/kubernetes/tools/recommender.

A case is a history of usage samples and kills, or operations on a histogram (`Case` in main.go has the fields).
"""

import msgspec
from support.oracle.lines import PROGRAMS, LineProgram


class Amounts(msgspec.Struct, rename="camel", frozen=True):
    """Milli-cores and bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class Recommended(msgspec.Struct, rename="camel", frozen=True):
    """What is recommended for one container."""

    target: Amounts
    lower: Amounts
    upper: Amounts
    uncapped: Amounts
    has_cpu: bool = True  # Whether there are samples of CPU
    has_memory: bool = True  # Whether there are samples of memory


class Checkpoint(msgspec.Struct, rename="camel"):
    total_weight: float = 0.0
    bucket_weights: dict[int, int] = {}


class Shape(msgspec.Struct, rename="camel"):
    """What a histogram is."""

    buckets: int
    is_empty: bool
    checkpoint: Checkpoint
    percentiles: list[float] = []


class Answer(msgspec.Struct):
    """What the autoscaler makes of a case."""

    error: str = ""
    statuses: list[dict[str, Recommended]] = []  # Container -> amounts, at each event that asks
    shapes: list[Shape] = []  # The histogram, at each operation that asks


class Recommender(LineProgram[Answer]):
    """A running program."""

    path = PROGRAMS / "recommender"
    answer = Answer
