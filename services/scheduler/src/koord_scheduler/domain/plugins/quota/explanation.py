"""Explains the runtime of a quota: the terms of the division, and which siblings lend to which.

Source: scheduler-core spec, 10.4 (step B); `koord quota tree`
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koord_scheduler.domain.plugins.quota.admission import quantity_text
from koord_scheduler.domain.plugins.quota.division import Claim, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOfLeft:
    """Share of a quota in one round of the division. A round offers the parent's remaining amount by weight."""

    left: int  # The amount that was divided in this round
    weight: int  # Shared weight of this quota
    total_weight: int  # Sum of the weights of all quotas that requested more
    offered: int  # left * weight / total_weight, plus at most one unit of rounding
    given_back: int  # The part of `offered` above the quota's request, which is divided in the next round


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceShare:
    """Computation of a quota's runtime for one resource. Amounts: milli-cores for cpu, whole units otherwise."""

    resource: str
    parent_total: int  # The amount that the parent divides among its children
    min: int  # The quota's min as its object states it
    base: int  # The min, scaled down if all mins exceed the total of the parent, or raised to the guaranteed amount
    asked: int  # The quota's request, at most its max
    weight: int
    first: int  # Amount of the first step: the base, or the request if it is less and the quota lends the rest
    # Share of the quota in each further step, which divides the remaining amount by weight.
    rounds: tuple[ShareOfLeft, ...]
    runtime: int  # The result
    lent: int  # Base minus runtime. 0 if the runtime is larger.
    borrowed: int  # Runtime minus base. 0 if the base is larger.
    lenders: dict[str, int]  # Quota of the same parent that lends -> amount
    borrowers: dict[str, int]  # Quota of the same parent whose runtime is above its base -> amount above the base
    unclaimed: int  # Amount of the parent above the sum of all bases
    unused: int  # Amount of the parent above the sum of all runtimes
    reason: str  # One sentence about how the runtime was computed


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExplanation:
    """One quota with its amounts and the explanation of its runtime. Amounts: milli-cores for cpu, whole units
    otherwise.
    """

    name: str
    tree: str  # Id of its tree; "" for the default tree
    parent: str  # Name of the parent; "" for a root
    is_parent: bool
    allow_lent: bool
    min: dict[str, int]
    max: dict[str, int]
    weight: dict[str, int]
    used: dict[str, int]
    request: dict[str, int]
    limited_request: dict[str, int]  # Its request, at most its max
    scaled_min: dict[str, int]  # Its min, scaled down if all mins together exceed the amounts of the parent
    runtime: dict[str, int] | None  # Its share of the parent; None if the quota has none (root, system, default)
    pods: int  # Number of its own pods
    children: tuple[str, ...]  # Sorted names of its children
    shares: tuple[ResourceShare, ...]
    warnings: tuple[str, ...]  # Sentences about unusual settings, see `forest`


def explain_share(
    name: str,
    resource: str,
    total: int,
    names: Sequence[str],
    claims: Sequence[Claim],
    runtimes: Sequence[int],
    minimum: int,
    rounds: Sequence[Round],
) -> ResourceShare:
    """Return how the runtime of one quota was computed for one resource.

    Args:
        total: The amount that the parent divides.
        names: Names of all children of the parent including the quota itself, in alphabetical order.
        claims: Input of each child to the division (min, request, weight ...), aligned with `names`.
        runtimes: Their runtimes, aligned with `names`.
    """
    index = names.index(name)
    claim, runtime = claims[index], runtimes[index]
    lent = {other: c.base - r for other, c, r in zip(names, claims, runtimes, strict=True) if r < c.base}
    borrowed = {other: r - c.base for other, c, r in zip(names, claims, runtimes, strict=True) if r > c.base}
    parts = tuple(
        ShareOfLeft(
            left=one.left,
            weight=claim.weight,
            total_weight=one.total_weight,
            offered=one.offered[index],
            given_back=one.returned.get(index, 0),
        )
        for one in rounds
        if index in one.offered
    )
    unclaimed = max(0, total - sum(c.base for c in claims))
    return ResourceShare(
        resource=resource,
        parent_total=total,
        min=minimum,
        base=claim.base,
        asked=claim.request,
        weight=claim.weight,
        first=claim.first(),
        rounds=parts,
        runtime=runtime,
        lent=lent.get(name, 0),
        borrowed=borrowed.get(name, 0),
        lenders=lent,
        borrowers=borrowed,
        unclaimed=unclaimed,
        unused=max(0, total - sum(runtimes)),
        reason=_reason(resource, claim, runtime, minimum, parts, lent, borrowed, unclaimed),
    )


def _reason(
    resource: str,
    claim: Claim,
    runtime: int,
    minimum: int,
    parts: Sequence[ShareOfLeft],
    lent: dict[str, int],
    borrowed: dict[str, int],
    unclaimed: int,
) -> str:
    def text(amount: int) -> str:
        return quantity_text(resource, amount)

    base = f"min {text(claim.base)}"
    if claim.base < minimum:
        base += f" (of {text(minimum)}, scaled down to what the parent has)"
    elif claim.base > minimum:
        base += f" (raised from {text(minimum)} by what is in use)"
    if claim.request <= claim.base:
        if not claim.lends:
            return f"asks for {text(claim.request)}, keeps its {base}: it does not lend"
        unused = claim.base - claim.request
        if not unused:
            return f"asks for its whole {base}"
        takers = ", ".join(sorted(borrowed))
        return f"asks for {text(claim.request)}, lends {text(unused)} of its {base} to {takers or 'nobody: none asks'}"
    sentence = f"asks for {text(claim.request)}, gets its {base}"
    if not claim.weight:
        return f"{sentence} and nothing of the rest: its shared weight is 0"
    if not parts:
        return f"{sentence} and nothing more: nothing is left"
    shares = "; then ".join(
        f"{text(part.offered)} of {text(part.left)} (weight {text(part.weight)} of {text(part.total_weight)})"
        + f", and gives {text(part.given_back)} back" * bool(part.given_back)
        for part in parts
    )
    sources = [f"{text(amount)} of {name}" for name, amount in sorted(lent.items())]
    sources += [f"{text(unclaimed)} beyond all mins"] if unclaimed else []
    got = "all of it" if runtime == claim.request else text(runtime)
    return (
        f"asks for {text(claim.request)} and gets {got}: its {base} and {text(runtime - claim.base)} more. "
        f"What is left ({', '.join(sources)}) is divided by weight: it gets {shares}"
    )
