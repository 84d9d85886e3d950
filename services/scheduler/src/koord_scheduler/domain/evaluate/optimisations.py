"""Switches of the optimisations. The first two never change an outcome (tested).

Source:
    scheduler-core spec, 12.2
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisations:
    """Switches.

    Attributes:
        dynamic_index: Few candidates are found by indexes and judged alone.
        equivalence_classes: Answers are kept for pods that are alike; off: every look judges all nodes afresh.
        random_relaxation: Looks end when better nodes have stopped turning up: other outcomes, see `sampled`.
    """

    dynamic_index: bool = True
    equivalence_classes: bool = True
    random_relaxation: bool = False


ALL_ON: Final = Optimisations()
"""All that change no outcome."""
