"""Quotas in words, from the leading scheduler's explanation of them. Pure.

source    scheduler-core spec, 10.4
"""

from collections.abc import Mapping

import msgspec
from rich.markup import escape

from koordctl.render.units import amounts_text, sentence_in_cores


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """How a quota came by its runtime of one resource; amounts in milli-cores or whole units."""

    resource: str
    reason: str
    lent: int = 0
    borrowed: int = 0
    lenders: dict[str, int] = {}
    borrowers: dict[str, int] = {}


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One quota; runtime None: it is limited by its max only."""

    name: str
    parent: str
    pods: int
    min: dict[str, int]
    max: dict[str, int]
    used: dict[str, int]
    request: dict[str, int]
    runtime: dict[str, int] | None
    shares: list[Share] = []
    warnings: list[str] = []


UNLIMITED = 1 << 60
"""A maximum beyond this is none: the default of the built-in quotas."""


def amounts(values: Mapping[str, int]) -> str:
    """`cpu 4, memory 8.0Gi`; `-` for nothing that is limited."""
    return amounts_text({name: amount for name, amount in values.items() if abs(amount) < UNLIMITED})


def quota_text(row: QuotaRow) -> str:
    """The quota in one line, as rich markup; red where it uses more than its runtime."""
    over = row.runtime is not None and any(row.used.get(name, 0) > limit for name, limit in row.runtime.items())
    runtime = "" if row.runtime is None else f"  runtime {amounts(row.runtime)}"
    line = (
        f"  used {amounts(row.used)}{runtime}  request {amounts(row.request)}"
        f"  min {amounts(row.min)}  max {amounts(row.max)}"
    )
    colour = "red" if over else "green" if row.pods else "bold"
    return f"[{colour}]{escape(row.name)}[/{colour}]{escape(line)}  {row.pods} pod{'s' if row.pods != 1 else ''}"


def sections(row: QuotaRow) -> list[str]:
    """A sentence for each resource of which something is asked, lent or borrowed, and each warning."""
    told = [share for share in row.shares if share.lent or share.borrowed or row.request.get(share.resource)]
    return [
        *(f"{share.resource}: {sentence_in_cores(share.reason)}" for share in told),
        *(f"warning: {each}" for each in row.warnings),
    ]
