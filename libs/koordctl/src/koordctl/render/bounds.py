"""Formatting of the bounds of recommended requests."""

from koordcore.events.recommendation import NO_BOUND, RecommendedAmounts

from koordctl.render.units import cores, gibibytes


def bound_texts(bound: RecommendedAmounts) -> tuple[str, str]:
    """Return cpu and memory of a lower or upper bound as text: `-` if there is no upper bound yet."""
    return cores(_known(bound.cpu_milli)), gibibytes(_known(bound.memory_bytes))


def _known(amount: int) -> int | None:
    return amount if amount < NO_BOUND else None
