"""Switches of the optimisations. All but the last one never change an outcome (tested).

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
        least_family: Number of similar pod equivalence classes from which they share an evaluation of each node.
            Without `equivalence_classes`, no classes share one.
        random_relaxation: Stop a search when further nodes have no better score. This changes outcomes, see `sampled`.
    """

    dynamic_index: bool = True
    equivalence_classes: bool = True
    least_family: int = 8
    random_relaxation: bool = False


ALL_ON: Final = Optimisations()
"""All optimisations that do not change an outcome."""
