"""The numbers of a decision of the descheduler, by name."""

from typing import TypeAlias

import msgspec


class Number(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number on which a decision rests, and the limit with which it was compared.

    Attributes:
        value: The number, such as a count, a usage in percent, or tokens that are left.
        limit: The limit, threshold or other bound; None if there is none, or if it is invalid.
    """

    value: int | float
    limit: int | float | None = None


Inputs: TypeAlias = dict[str, Number]
"""Code of a limit, or name of a measure -> its number."""


def plan_inputs(*, gpus: int, moves: int, fragment_before: float, fragment_after: float) -> Inputs:
    """Return the numbers of a plan that moves pods for a waiting gang.

    Args:
        gpus: Number of whole GPUs that the gang needs.
        moves: Number of pods that move.
        fragment_before: GPU milli that typical pods cannot use before the plan.
        fragment_after: The same after it.
    """
    return {
        "fragment_gpu_milli": Number(value=round(fragment_after, 3), limit=round(fragment_before, 3)),
        "gpus": Number(value=gpus),
        "moves": Number(value=moves),
    }
