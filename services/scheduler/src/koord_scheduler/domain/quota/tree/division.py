"""How one resource of a parent is divided among its children, exactly.

Every child first gets what it is entitled to (its min) or, where it may lend, only what it asks for; what is left goes
to those that ask for more, by weight; who gets more than it asks for gives the excess back, until nothing is left or
nobody wants more. Integers throughout: the units that rounding leaves over go to the largest remainders.

Source:
    scheduler-core spec, 10.4; pitfall 5
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Claim(NamedTuple):
    """What one child brings into the division of one resource.

    Attributes:
        request: Its limited request.
        base: M: its scaled min, or what is guaranteed to it when that is more.
    """

    request: int
    base: int
    weight: int
    lends: bool

    def first(self) -> int:
        """Its share before anything is shared out (step B 1)."""
        if self.request > self.base:
            return self.base
        return self.request if self.lends else self.base

    def whole(self) -> int:
        """Return the most that it can get: its request if it has a weight, else what it gets at first."""
        return self.request if self.request > self.base and self.weight > 0 else self.first()


@dataclass(frozen=True, slots=True)
class Round:
    """One round of sharing out: what there was, the weights of those that wanted more, by index, and what happened.

    Attributes:
        offered: Index -> units by weight and remainder.
        returned: Index -> units above its request, given back for the next round.
    """

    left: int
    total_weight: int
    offered: dict[int, int]
    returned: dict[int, int]


def scaled_min(total: int, minimum: int, sum_min: int) -> int:
    """Return a min scaled down to what there is, when the mins of all children together are more.

        total <= 0 ? 0 : trunc(float(total) * float(min) / float(sum of min))

    Call it only where total < sum_min. Double arithmetic is the rule here.

    Source:
        scheduler-core spec, 10.4 A
    """
    return 0 if total <= 0 or sum_min <= 0 else int(float(total) * float(minimum) / float(sum_min))


def divide(total: int, claims: Sequence[Claim], rounds: list[Round] | None = None) -> list[int]:
    """Return the share of every claim, aligned with `claims`, which are in the order of the names (it breaks ties).

    Args:
        total: May be negative or less than the bases together: then everyone keeps its first share.
        rounds: Is filled with what happened, for explanations.

    Source:
        scheduler-core spec, 10.4 B
    """
    shares = [claim.first() for claim in claims]
    wanting = [index for index, claim in enumerate(claims) if claim.request > claim.base and claim.weight > 0]
    left = total - sum(shares)
    while left > 0 and wanting:
        total_weight = sum([claims[index].weight for index in wanting])
        parts = [divmod(claims[index].weight * left, total_weight) for index in wanting]
        residual = left - sum([part[0] for part in parts])
        lucky: set[int] = set()
        if residual:
            order = sorted(range(len(parts)), key=lambda position: -parts[position][1])
            lucky = set(order[:residual])
        still: list[int] = []
        offered: dict[int, int] = {}
        returned: dict[int, int] = {}
        for position, index in enumerate(wanting):
            offer = parts[position][0] + (position in lucky)
            share, request = shares[index] + offer, claims[index].request
            if rounds is not None:
                offered[index] = offer
            if share < request:
                still.append(index)
            elif share > request:
                returned[index] = share - request
                share = request
            shares[index] = share
        if rounds is not None:
            rounds.append(Round(left, total_weight, offered, returned))
        left = sum(returned.values())
        wanting = still
    return shares
