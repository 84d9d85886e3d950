"""Reports of a round for users: why pods were refused, and the round as an explanation."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from koordcore.events.descheduling import Inputs, RoundAttempt, RoundEnded, RoundLimit

from koord_descheduler.domain.framework.eviction import EVICTED, LIMIT_NAMES, Attempt, EvictionLimiter, Result
from koord_descheduler.domain.framework.plugin import NumbersOf
from koord_descheduler.domain.framework.round import RoundOutcome
from koord_descheduler.domain.jobs import limits
from koord_descheduler.domain.jobs.object_limiter import OBJECT_LIMITER
from koord_descheduler.domain.jobs.plugin import NAME as MIGRATION_CONTROLLER
from koord_descheduler.domain.view.pods import PodView

MOST_FILTERED: Final = 100
"""Pods per plugin of a profile whose refusal by filters is kept with its reasons."""
WORKLOAD_LIMITS: Final = frozenset({limits.MAX_PER_WORKLOAD, limits.MAX_UNAVAILABLE, OBJECT_LIMITER})


def _workload(pod: PodView) -> str:
    return "" if pod.controller is None else f"{pod.controller.kind} {pod.namespace}/{pod.controller.name}"


_HOLDERS: Final[dict[str, Callable[[PodView], str]]] = {
    limits.MAX_GLOBALLY: lambda _: "",
    limits.MAX_PER_NODE: lambda pod: pod.node,
    limits.MAX_PER_NAMESPACE: lambda pod: pod.namespace,
    limits.MAX_PER_WORKLOAD: _workload,
    limits.MAX_UNAVAILABLE: _workload,
    OBJECT_LIMITER: _workload,
}


class FilteredPod(NamedTuple):
    """A pod that a plugin wanted to evict, with the codes and numbers of the reasons why filter plugins refuse it."""

    pod: PodView
    codes: Sequence[str]
    inputs: Inputs


@dataclass(slots=True)
class Refused:
    """The reasons why pods were refused in this round."""

    # Code of a reason -> uids of the pods that were refused for it.
    by_code: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    # Code of a limit on migrations -> nodes, namespaces or workloads that have reached it.
    limits: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    # (profile, plugin) -> uid -> refused pod, for the first 100 pods that filters refused, in the order of the plugin's
    # requests.
    filtered: dict[tuple[str, str], dict[str, FilteredPod]] = field(
        default_factory=dict[tuple[str, str], dict[str, FilteredPod]]
    )
    # (profile, plugin) -> uids of the further pods that filters refused.
    others: dict[tuple[str, str], set[str]] = field(default_factory=dict[tuple[str, str], set[str]])

    @property
    def at_limit(self) -> set[str]:
        """The controllers, as "Kind namespace/name", whose pods were refused by a limit of their workload."""
        return {name for code in WORKLOAD_LIMITS for name in self.limits.get(code, ())}

    def note(self, pod: PodView, codes: Sequence[str]) -> None:
        """Count the refusal of a pod, by the codes of the reasons."""
        for code in codes:
            self.by_code.setdefault(code, set()).add(pod.uid)
            holder = _HOLDERS.get(code)
            if holder is not None:
                named = self.limits.setdefault(code, set())
                name = holder(pod)
                if name:
                    named.add(name)

    def note_filtered(self, profile: str, plugin: str, pod: PodView, codes: Sequence[str], numbers: NumbersOf) -> None:
        """Count a pod for which a plugin of a profile asked, and that filter plugins refuse. See `NoteRefusal`.

        The numbers are computed for a pod that is kept with its reasons, and for no other one. A pod that is being
        evicted is no refused one.
        """
        if codes[0] == EVICTED:
            return
        self.note(pod, codes)
        asked = self.filtered.setdefault((profile, plugin), {})
        if pod.uid in asked:
            return
        if len(asked) < MOST_FILTERED:
            asked[pod.uid] = FilteredPod(pod, codes, numbers(pod, codes))
        else:
            self.others.setdefault((profile, plugin), set()).add(pod.uid)

    def note_attempts(self, attempts: Iterable[Attempt]) -> None:
        """Count the pods that plugins chose and that the MigrationController did not take.

        If the filters have accepted them, the object limiter has refused them.
        """
        for attempt in attempts:
            if attempt.result is Result.ERROR and attempt.evictor == MIGRATION_CONTROLLER:
                self.note(attempt.pod, attempt.codes or (OBJECT_LIMITER,))


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
    """Whether a round differs from the round before, apart from its duration."""
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
