"""A round as an explanation: classified nodes, chosen pods, and the limits that are reached."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from koordcore.events.descheduling import RoundAttempt, RoundEnded, RoundLimit

from koord_descheduler.domain.framework.eviction import LIMIT_NAMES, EvictionLimiter, Result
from koord_descheduler.domain.framework.round import RoundOutcome
from koord_descheduler.domain.reporting.refusals import Refused

MOST_ATTEMPTS: Final = 200
LONGEST_TEXT: Final = 1024


def round_ended(
    outcome: RoundOutcome,
    limiter: EvictionLimiter,
    refused: Refused,
    *,
    seconds: float,
    nodes: int,
    is_dry_run: bool,
    left_out: Iterable[str],
) -> RoundEnded:
    """Return the explanation of a round: classes of nodes, chosen pods, refused pods, and limits that it reached.

    Args:
        outcome: Decisions of the round.
        limiter: Limits on evictions, with the counts of the round.
        refused: Reasons why filter plugins refused pods.
        seconds: Duration of the round.
        nodes: Number of nodes in the cluster.
        is_dry_run: Whether pods were only counted.
        left_out: Why profiles are left out of the round.
    """
    return RoundEnded(
        seconds=round(seconds, 6),
        nodes=nodes,
        is_dry_run=is_dry_run,
        classified=outcome.classified,
        attempts=[
            RoundAttempt(
                pod=attempt.pod.key,
                uid=attempt.pod.uid,
                node=attempt.pod.node,
                plugin=attempt.plugin,
                reason=attempt.reason[:LONGEST_TEXT],
                result=str(attempt.result),
            )
            for attempt in outcome.attempts[:MOST_ATTEMPTS]
        ],
        results=dict(Counter(str(attempt.result) for attempt in outcome.attempts)),
        refused={code: len(pods) for code, pods in sorted(refused.by_code.items())},
        limits=[*_budgets(limiter), *_of_jobs(refused)],
        faults=[
            each[:LONGEST_TEXT]
            for each in (*left_out, *(f"{fault.plugin} of {fault.profile}: {fault.text}" for fault in outcome.faults))
        ],
    )


def is_news(story: RoundEnded, before: RoundEnded | None) -> bool:
    """Return whether the explanation of a round differs from that of the round before, apart from its duration."""
    return before is None or msgspec.structs.replace(story, seconds=0.0) != msgspec.structs.replace(before, seconds=0.0)


def _budgets(limiter: EvictionLimiter) -> Iterator[RoundLimit]:
    limits = limiter.limits
    for name, limit, counts in (
        (LIMIT_NAMES[Result.NODE_LIMIT], limits.per_node, limiter.by_node),
        (LIMIT_NAMES[Result.NAMESPACE_LIMIT], limits.per_namespace, limiter.by_namespace),
    ):
        reached = [] if limit is None else _at(counts, limit)
        if reached:
            yield RoundLimit(name=name, reached_by=reached)
    if limits.total is not None and limiter.total >= limits.total:
        yield RoundLimit(name=LIMIT_NAMES[Result.TOTAL_LIMIT])


def _at(counts: Mapping[str, int], limit: int) -> list[str]:
    return sorted(name for name, count in counts.items() if count >= max(limit, 1))


def _of_jobs(refused: Refused) -> Iterator[RoundLimit]:
    for code in sorted(refused.limits):
        yield RoundLimit(name=code, reached_by=sorted(refused.limits[code]))
