"""Switches of the optimisations. The first two never change an outcome (tested).

Source:
    scheduler-core spec, 12.2
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimisations:
    """Switches of the engine's optimisations, for tests and measurements.

    Attributes:
        dynamic_index: Find few candidate nodes with indexes and evaluate only these.
        equivalence_classes: Cache results for pods of one equivalence class. If off, every cycle evaluates all nodes.
        random_relaxation: Stop a search when further nodes have no better score. This changes outcomes, see `sampled`.
    """

    dynamic_index: bool = True
    equivalence_classes: bool = True
    random_relaxation: bool = False


ALL_ON: Final = Optimisations()
"""All optimisations that do not change an outcome."""
