"""Which of the optimisations are on. The first two never change an outcome (tested); see `engine` and `narrow`.

source    scheduler-core spec, 12.2
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisations:
    """Switches.

    dynamic_index         few candidates are found by indexes and judged alone
    equivalence_classes   answers are kept for pods that are alike; off: every look judges all nodes afresh
    random_relaxation     looks end when better nodes have stopped turning up: other outcomes, see `sampled`
    """

    dynamic_index: bool = True
    equivalence_classes: bool = True
    random_relaxation: bool = False


ALL_ON: Final = Optimisations()
"""All that change no outcome."""
