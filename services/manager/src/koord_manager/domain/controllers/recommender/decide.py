"""Compute the status of each Recommendation: recommended amounts, conditions, and the cause of a change.

Source:
    manager spec, 15.2, 15.5, 15.6
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.recommendation import (
    ContainerRecommendation,
    RecommendationComputed,
    RecommendationCondition,
    RecommendationDropped,
    RecommendedAmounts,
    UsagePercentiles,
)
from koordcore.protocol.recommendations import ContainerPolicy, policy_of
from koordcore.state.aggregates import PodSpecState, RecommendationState
from koordcore.values.resources import parse_amounts
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import RECOMMENDER
from koord_manager.domain.controllers.recommender.book import RecommenderBook
from koord_manager.domain.controllers.recommender.model import CONFIDENT_DAYS, Amounts, estimate
from koord_manager.domain.controllers.recommender.targets import Wanted

REFRESH_SECONDS: Final = 600
NEWS_OF_BOUNDS: Final = 0.05
"""Relative change of a bound that is published at once; a smaller one waits for the next refresh."""
REFRESHED: Final = "refreshed"
PROVIDED: Final = "RecommendationProvided"
LOW_CONFIDENCE: Final = "LowConfidence"
NO_OBJECTS: Final = "NoObjectsMatched"
FETCHING: Final = "FetchingHistory"
UNSUPPORTED: Final = "ConfigUnsupported"

LivePods = Sequence[tuple[str, PodSpecState]]


def recommendation_drafts(
    book: RecommenderBook,
    view: ManagerView,
    live: dict[str, list[tuple[str, PodSpecState]]],
    now: datetime,
    *,
    loading: bool,
) -> list[Draft]:
    """Return the facts with the status of each Recommendation that changed enough, or whose published status is old.

    For a Recommendation whose object was deleted, return the fact that its status is dropped.

    Args:
        live: Id of a Recommendation -> uid and state of its pods, oldest first.
        loading: Whether past reports are still being read, so that the models are incomplete.
    """
    drafts: list[Draft] = []
    known = view.state.of_kind(RecommendationState)
    queue = view.queue
    queue.resync(RECOMMENDER, (wanted.id for wanted in book.targets.all()))
    keys = set(queue.take(RECOMMENDER))
    for wanted in book.targets.all():
        if wanted.id not in keys:
            continue
        state = known.get(wanted.id)
        pods = live.get(wanted.id, [])
        decide = partial(computed, book, wanted, pods, state, now, loading=loading)
        event = queue.attempt(RECOMMENDER, wanted.id, decide)
        if event is not None:
            drafts.append(Draft(AggregateRef("recommendation", wanted.id), event, state.seq if state else 0))
    present = {wanted.id for wanted in book.targets.all()}
    for id_ in keys - present:
        queue.forget(RECOMMENDER, id_)
    for id_, state in known.items():
        if id_ not in present and (state.target or state.conditions):
            namespace, _, name = id_.partition("=")
            dropped = RecommendationDropped(namespace=namespace, name=name)
            drafts.append(Draft(AggregateRef("recommendation", id_), dropped, state.seq))
    return drafts


def computed(
    book: RecommenderBook,
    wanted: Wanted,
    pods: LivePods,
    state: RecommendationState | None,
    now: datetime,
    *,
    loading: bool = False,
) -> RecommendationComputed | None:
    found = current_status(book, wanted, pods, state, now, loading=loading)
    cause = cause_of(wanted, found, state, now)
    return msgspec.structs.replace(found, cause=cause) if cause is not None else None


def current_status(
    book: RecommenderBook,
    wanted: Wanted,
    pods: LivePods,
    state: RecommendationState | None,
    now: datetime,
    *,
    loading: bool = False,
) -> RecommendationComputed:
    """Return the present status, whether it has to be published or not, with the cause "refreshed"."""
    containers = container_recommendations(book, wanted, pods)
    return RecommendationComputed(
        namespace=wanted.namespace,
        name=wanted.name,
        target=wanted.target.key if wanted.target else "",
        mode=str(wanted.mode),
        containers=containers,
        conditions=conditions_of(wanted, containers, len(pods), state, now, loading=loading),
        pods=len(pods),
        cause=REFRESHED,
        observed_to=book.position,
        spec_version=wanted.version,
        settings=book.settings.changed,
    )


class _Known(NamedTuple):
    """Whether there are samples of a resource."""

    cpu: bool
    memory: bool

    def of(self, amounts: RecommendedAmounts) -> RecommendedAmounts:
        return RecommendedAmounts(amounts.cpu_milli if self.cpu else 0, amounts.memory_bytes if self.memory else 0)


def container_recommendations(book: RecommenderBook, wanted: Wanted, pods: LivePods) -> list[ContainerRecommendation]:
    """Return the recommended amounts of each container of a Recommendation, in order of name.

    Containers without samples, and containers whose policy is `Off`, are left out. A resource without samples has no
    amounts: all are 0 (reality, 5.8).
    """
    if wanted.target is None:
        return []
    models = book.models_of(wanted.target.namespace, wanted.target.key)
    count = max((len(spec.object.spec.containers) for _, spec in pods), default=len(models))
    found: list[ContainerRecommendation] = []
    for name, model in models.items():
        policy = policy_of(wanted.policies, name)
        if policy.is_off or (model.count == 0 and model.memory.is_empty):
            continue
        estimated = estimate(model, max(count, 1))
        known = _Known(cpu=not model.cpu.is_empty, memory=not model.memory.is_empty)
        found.append(
            ContainerRecommendation(
                name=name,
                target=known.of(_capped(estimated.target, policy)),
                lower_bound=known.of(_capped(estimated.lower, policy)),
                upper_bound=known.of(_capped(estimated.upper, policy)),
                uncapped_target=known.of(RecommendedAmounts(*estimated.target)),
                percentiles={key: UsagePercentiles(*value) for key, value in estimated.percentiles.items()},
                samples=estimated.samples,
                first_sample_at=_text(model.first_at),
                last_sample_at=_text(model.last_at),
                confidence_days=estimated.confidence_days,
            )
        )
    return found


def conditions_of(
    wanted: Wanted,
    containers: Sequence[ContainerRecommendation],
    pods: int,
    state: RecommendationState | None,
    now: datetime,
    *,
    loading: bool,
) -> list[RecommendationCondition]:
    """Return the conditions of a Recommendation with `pods` live pods, each with the time of its last change."""
    if wanted.target is None:
        found_conditions = [
            (PROVIDED, False, "ConfigUnsupported", ""),
            (UNSUPPORTED, True, "InvalidTarget", wanted.fault),
        ]
    else:
        low = min((container.confidence_days for container in containers), default=0.0)
        found_conditions = [(PROVIDED, bool(containers), "SamplesSeen" if containers else "NoSamples", "")]
        is_low = low < CONFIDENT_DAYS
        message = f"{low:.2f} days of history, {CONFIDENT_DAYS:g} are needed" if is_low else ""
        found_conditions.append((LOW_CONFIDENCE, is_low, "ShortHistory" if is_low else "EnoughHistory", message))
        if pods == 0:
            found_conditions.append((NO_OBJECTS, True, "NoPods", f"no pod belongs to {wanted.target.key}"))
        if loading:
            found_conditions.append((FETCHING, True, "Loading", "history is being read"))
    before = {condition.type: condition for condition in state.conditions} if state else {}
    return [
        RecommendationCondition(
            type=kind,
            status=str(holds),
            reason=reason,
            message=message,
            last_transition_time=(
                before[kind].last_transition_time
                if kind in before and before[kind].status == str(holds)
                else rfc3339(now)
            ),
        )
        for kind, holds, reason, message in found_conditions
    ]


def cause_of(
    wanted: Wanted, found: RecommendationComputed, state: RecommendationState | None, now: datetime
) -> str | None:
    """Return why a computed status has to be published, or None if the published one is good enough.

    Returns:
        "first", "spec" (the object changed), "amounts", "bounds" (by more than 5 %), "conditions", or "refreshed" (the
        published status is at least ten minutes old and there are amounts).

    Source: manager spec, 15.6.
    """
    containers, conditions = found.containers, found.conditions
    if state is None or (not state.target and not state.conditions):
        return "first"
    if state.spec_version != wanted.version:
        return "spec"
    if [(c.name, c.target, c.uncapped_target) for c in containers] != [
        (c.name, c.target, c.uncapped_target) for c in state.containers
    ]:
        return "amounts"
    if any(_bounds_moved(old, new) for old, new in zip(state.containers, containers, strict=True)):
        return "bounds"
    if [(c.type, c.status, c.reason) for c in conditions] != [(c.type, c.status, c.reason) for c in state.conditions]:
        return "conditions"
    age = (now - datetime.fromisoformat(state.updated_at)).total_seconds()
    return REFRESHED if age >= REFRESH_SECONDS and containers else None


def _bounds_moved(old: ContainerRecommendation, new: ContainerRecommendation) -> bool:
    """Return whether a bound changed enough to be published; bounds change with every sample, by less and less."""
    return any(
        abs(after - before) > NEWS_OF_BOUNDS * before
        for was, now in ((old.lower_bound, new.lower_bound), (old.upper_bound, new.upper_bound))
        for before, after in ((was.cpu_milli, now.cpu_milli), (was.memory_bytes, now.memory_bytes))
    )


def _capped(amounts: Amounts, policy: ContainerPolicy) -> RecommendedAmounts:
    least, most = parse_amounts(policy.min_allowed), parse_amounts(policy.max_allowed)
    cpu, memory = (
        _within(amount, least.get(name, 0), most.get(name, 0))
        for name, amount in (("cpu", amounts.cpu_milli), ("memory", amounts.memory_bytes))
    )
    return RecommendedAmounts(cpu, memory)


def _within(amount: int, least: int, most: int) -> int:
    """`most`: 0 for none."""
    return min(max(amount, least), most) if most else max(amount, least)


def _text(at: float | None) -> str:
    return "" if at is None else rfc3339(datetime.fromtimestamp(at, UTC))


def is_confident(state: RecommendationState) -> bool:
    """Return whether a published recommendation has amounts and at least a day of history, so that pods may be changed.

    While past reports are still being read, return False.
    """
    holds = {condition.type for condition in state.conditions if condition.status == str(True)}
    return PROVIDED in holds and LOW_CONFIDENCE not in holds and FETCHING not in holds
