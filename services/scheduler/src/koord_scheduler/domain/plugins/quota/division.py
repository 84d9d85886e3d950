"""Divides one resource of a parent among its children, exactly.

Every child first gets its min, or its request if that is less and the child lends. The rest is divided by weight
among the children that request more. A child that gets more than it requests gives the excess back. This is repeated
until no amount is left or no child requests more. All amounts are integers: units that rounding leaves over go to the
largest remainders.

Source: scheduler-core spec, 10.4; pitfall 5
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Claim(NamedTuple):
    """The claim of one child quota in the division of one resource of its parent."""

    request: int  # Its request, at most its max
    base: int  # Its scaled min, or the amount that is guaranteed to it if that is more. The spec calls it M.
    weight: int  # Its shared weight
    lends: bool  # Whether other quotas may use the part of its base that it does not request

    def first(self) -> int:
        """Return the amount that the child gets before the rest is divided (step B 1 of the spec). This is its base, or
        its request if that is less and the child lends the difference.
        """
        if self.request > self.base:
            return self.base
        return self.request if self.lends else self.base

    def whole(self) -> int:
        """Return the largest share that the child can get. This is its request if that is above its base and the child
        has a weight, else `first`.
        """
        return self.request if self.request > self.base and self.weight > 0 else self.first()


@dataclass(frozen=True, slots=True)
class Round:
    """One round of the division, in which the remaining amount is divided by weight."""

    left: int  # The amount that was divided
    total_weight: int  # Sum of the weights of the children that requested more
    offered: dict[int, int]  # Index of a child -> units that it was offered, by weight and remainder
    returned: dict[int, int]  # Index of a child -> offered units above its request, which are divided in the next round


def scaled_min(total: int, minimum: int, sum_min: int) -> int:
    """Return a child's min, reduced in proportion because the mins of all children together exceed `total`.

        total <= 0 ? 0 : trunc(float(total) * float(minimum) / float(sum_min))

    Call it only if total < sum_min. The rule requires double arithmetic.
    """
    return 0 if total <= 0 or sum_min <= 0 else int(float(total) * float(minimum) / float(sum_min))


def divide(total: int, claims: Sequence[Claim], rounds: list[Round] | None = None) -> list[int]:
    """Divide an amount among child quotas. Return the share of every claim, aligned with `claims`. `total`: the amount.
    If it is less than the sum of `Claim.first`, every child still gets its `Claim.first`. `claims`: claims of the
    children, in alphabetical order of their names, which breaks ties. `rounds`: if given, the rounds are appended to
    it, for explanations.
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
