"""Memory between rounds: the facts that a round writes for the next round, and how the next leader reads them.

A round reads its anomaly detectors from the fold, and its decision is stored before its effects. So a round of another
leader decides in the same way, and carries out the stored decisions of a killed leader.

Source:
    descheduler spec, 8.6, 14
"""

import hashlib
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from koordcore.events.descheduling import (
    MOST_COSTS,
    DeletionCostsDecided,
    DetectorGroup,
    DetectorState,
    DryRunMovesChanged,
    EvictionRefused,
    PodCost,
    ReadReports,
    RefusalsChanged,
    RoundDecided,
    RoundMove,
    RoundMovesAdded,
)
from koordcore.events.envelope import Draft, Event
from koordcore.protocol import keys
from koordcore.state.descheduling import RoundsState
from koordcore.values.timestamps import rfc3339, unix_seconds
from msgspec.structs import replace

from koord_descheduler.domain.framework.eviction import LIMIT_NAMES, LONGEST_MESSAGE, Attempt, EvictionLimiter, Result
from koord_descheduler.domain.framework.plugin import Proposal, SetDeletionCost
from koord_descheduler.domain.framework.round import RoundOutcome
from koord_descheduler.domain.jobs.object_limiter import OBJECT_LIMITER
from koord_descheduler.domain.jobs.plugin import NAME as MIGRATION_CONTROLLER
from koord_descheduler.domain.jobs.plugin import JobRequest
from koord_descheduler.domain.plugins.low_node_load.anomaly import Detector, UsageKind
from koord_descheduler.domain.rounds.reporting import Refused
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

MOVES_AT_ONCE: Final = 200
"""Moves in one fact, which must stay smaller than a message of the log."""
_MOST_POSITIONS: Final = 200
"""Nodes in a fact whose reports are named. The digest covers all of them."""
_MOST_REFUSED: Final = 1000
"""Refused attempts of a round that are recorded."""
EVICTOR: Final = "evict_plugin"
"""Code of a pod that the evict plugin did not take."""
_OF_THE_PROOF: Final = {
    Result.NO_PLACE: "no_place",
    Result.NOT_BETTER: "not_better",
    Result.UNPROVED: "unproved",
}
"""Result of an attempt that the scheduler's answer refused -> code of the reason."""
DetectorStates = Mapping[tuple[UsageKind, str], Detector]


class RoundStart(NamedTuple):
    cluster: ClusterView
    position: int  # Position of the log up to which the view is folded
    memory: RoundsState | None  # What earlier rounds have left


class RoundDecision(NamedTuple):
    outcome: RoundOutcome  # What the plugins decided, after the scheduler's proof
    moves: Sequence[RoundMove]
    plans: Sequence[Draft]  # Facts of the plans of moves that are made together
    closed: Sequence[str]  # Names of the nodes that are closed for new pods
    refused: Refused  # The pods that stay, with the reasons
    seconds: float  # Real seconds for which the plugins worked

    def with_plans(self, stored: Collection[str]) -> "RoundDecision":
        """Leave out the moves whose plan the log did not store."""
        return self._replace(moves=[move for move in self.moves if not move.plan or move.plan in stored])


def detectors_of(state: RoundsState | None) -> dict[tuple[UsageKind, str], Detector]:
    """(kind of usage, name of a node) -> its anomaly detector after the last round."""
    if state is None:
        return {}
    return {
        (UsageKind(usage), node): Detector(
            is_anomalous=each.is_anomalous,
            abnormal=each.abnormal,
            normal=each.normal,
            since=unix_seconds(each.since),
            last_abnormal=unix_seconds(each.last_abnormal),
        )
        for usage, of_nodes in state.detectors.items()
        for node, each in of_nodes.items()
    }


def detector_changes(before: DetectorStates, after: DetectorStates) -> list[DetectorGroup]:
    """The detectors that a round changed. Nodes that end in the same state are one group.

    The state of a group is None if its detectors were reset.
    """
    groups: dict[tuple[UsageKind, Detector | None], list[str]] = {}
    for usage, node in sorted(before.keys() | after.keys()):
        state = after.get((usage, node))
        if state != before.get((usage, node)):
            groups.setdefault((usage, state), []).append(node)
    return [
        DetectorGroup(usage=str(usage), nodes=nodes, state=None if state is None else _state(state))
        for (usage, state), nodes in groups.items()
    ]


def _state(detector: Detector) -> DetectorState:
    return DetectorState(
        is_anomalous=detector.is_anomalous,
        abnormal=detector.abnormal,
        normal=detector.normal,
        since=_time(detector.since),
        last_abnormal=_time(detector.last_abnormal),
    )


def _time(seconds: float) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds else ""


def moves_of(
    now: float, chosen: Iterable[Attempt], requests: Iterable[JobRequest], migrating: Mapping[str, object]
) -> list[RoundMove]:
    """The pods that have to leave because of a round, at `now` in Unix seconds.

    `migrating`: profiles whose pods leave by jobs. Their pods without a request are left out, because of a dry run.
    """
    jobs = {request.pod.uid: request.name for request in requests}
    return [
        replace(
            _move(now, attempt.pod, attempt.profile, attempt.plugin),
            reason=attempt.reason[:LONGEST_MESSAGE],
            job=jobs.get(attempt.pod.uid, ""),
            plan="" if attempt.plan is None else attempt.plan.id,
            inputs=attempt.inputs,
        )
        for attempt in chosen
        if attempt.pod.uid in jobs or attempt.profile not in migrating
    ]


def _move(now: float, pod: PodView, profile: str, plugin: str) -> RoundMove:
    return RoundMove(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=pod.node,
        profile=profile,
        plugin=plugin,
        reason="",
        round=_time(now),
    )


def decision(
    now: float,
    moves: Sequence[RoundMove],
    closed: Sequence[str],
    detectors: Sequence[DetectorGroup],
    reports: Mapping[str, int],
) -> Iterator[Event]:
    """Yield the facts of a round; none if it chose no pod, closed no node and changed no detector.

    `now`: time of the round in Unix seconds. `reports`: node -> position of the usage report that the round has read.
    """
    if not (moves or closed or detectors):
        return
    concerned = dict.fromkeys([*(move.node for move in moves), *(name for each in detectors for name in each.nodes)])
    yield RoundDecided(
        started_at=_time(now),
        moves=[*moves[:MOVES_AT_ONCE]],
        closed=[*closed],
        detectors=[*detectors],
        reports=_read(reports, [name for name in concerned if name in reports][:_MOST_POSITIONS]),
    )
    for begin in range(MOVES_AT_ONCE, len(moves), MOVES_AT_ONCE):
        yield RoundMovesAdded(moves=[*moves[begin : begin + MOVES_AT_ONCE]])


def report_positions(cluster: ClusterView) -> dict[str, int]:
    """Node -> position of its newest usage report."""
    return {node.name: each.position for node in cluster.nodes if (each := cluster.metrics.get(node.name)) is not None}


def _read(reports: Mapping[str, int], concerned: Iterable[str]) -> ReadReports | None:
    """None if there are no reports."""
    if not reports:
        return None
    lines = "\n".join(f"{name}={position}" for name, position in sorted(reports.items()))
    return ReadReports(
        nodes=len(reports),
        last=max(reports.values()),
        digest=hashlib.sha256(lines.encode()).hexdigest()[:16],
        positions={name: reports[name] for name in concerned},
    )


def dry_run_changes(now: float, attempts: Iterable[Attempt], state: RoundsState | None) -> Iterator[Event]:
    """Yield a fact if the set of pods changed that would leave without dry run. Only the first 200 attempts count."""
    tried = [each for each in attempts if each.result is Result.DRY_RUN][:MOVES_AT_ONCE]
    moves = {move.choice: move for move in moves_of(now, tried, (), {})}
    known = frozenset(() if state is None else state.tried)
    if moves.keys() != known:
        chosen = [move for choice, move in moves.items() if choice not in known]
        yield DryRunMovesChanged(chosen=chosen, dropped=sorted(known - moves.keys()))


class Refusals(NamedTuple):
    """The pods that plugins asked for in a round and that stay."""

    found: dict[str, EvictionRefused]  # Pod as `RoundMove.choice` -> its refusal, for those that the round records
    dropped: int  # Number of the others


def refusals_of(now: float, attempts: Iterable[Attempt], refused: Refused, limiter: EvictionLimiter) -> Refusals:
    """The pods that a round did not move although plugins asked for them. Only the first 1,000 refused attempts count.

    `attempts`: after the proof. `limiter`: with the counts of the round.
    """
    tried = [each for each in attempts if each.result not in (Result.SUCCESS, Result.DRY_RUN)]
    noted, found = tried[:_MOST_REFUSED], dict[str, EvictionRefused]()
    for attempt, move in zip(noted, moves_of(now, noted, (), {}), strict=True):
        codes = sorted({*attempt.codes}) or [_code(attempt)]
        number = limiter.number(attempt.result, move.node, move.namespace)
        counted = move if number is None else replace(move, inputs={codes[0]: number, **move.inputs})
        text = "" if attempt.codes else _text(attempt)
        found.setdefault(move.choice, EvictionRefused(move=counted, codes=codes, text=text))
    for (profile, plugin), pods in refused.filtered.items():
        for pod, codes, inputs in pods.values():
            move = replace(_move(now, pod, profile, plugin), inputs=inputs)
            found.setdefault(move.choice, EvictionRefused(move=move, codes=sorted({*codes})))
    return Refusals(found, dropped=len(tried) - len(noted) + sum(map(len, refused.others.values())))


def refusal_changes(refusals: Refusals, state: RoundsState | None) -> Iterator[RefusalsChanged]:
    """Yield the facts that other pods are refused than before, or for other reasons."""
    known = {} if state is None else state.refusals
    changed = [each for choice, each in refusals.found.items() if each.codes != known.get(choice)]
    ended = sorted(known.keys() - refusals.found.keys())
    for begin in range(0, max(len(changed), len(ended)), MOVES_AT_ONCE):
        part = slice(begin, begin + MOVES_AT_ONCE)
        yield RefusalsChanged(refused=changed[part], ended=ended[part], dropped=refusals.dropped)


def _code(attempt: Attempt) -> str:
    """Why an attempt was refused. The object limiter is why a job is not taken."""
    if attempt.result is Result.ERROR:
        return OBJECT_LIMITER if attempt.evictor == MIGRATION_CONTROLLER else EVICTOR
    return _OF_THE_PROOF.get(attempt.result) or LIMIT_NAMES[attempt.result]


def _text(attempt: Attempt) -> str:
    """The sentence of a code which does not explain itself; else ""."""
    if _code(attempt) == EVICTOR:
        return f"refused by {attempt.evictor}"
    return str(attempt.result) if attempt.result in _OF_THE_PROOF else ""


def decided_costs(
    now: float, proposals: Iterable[Proposal], refused: Container[PodCost], cluster: ClusterView
) -> Iterator[DeletionCostsDecided]:
    """Yield the facts about the deletion costs that a round is going to write. The last proposal about a pod counts.

    `refused`: changes that the API server refused a short time ago. They are left out.
    """
    wanted = {each.pod: each for each in proposals if isinstance(each, SetDeletionCost)}
    by_plugin: dict[tuple[str, str], list[PodCost]] = {}
    for uid, each in wanted.items():
        cost = _cost(cluster.pod_by_uid[uid], each.cost)
        if cost not in refused:
            by_plugin.setdefault((each.profile, each.plugin), []).append(cost)
    for (profile, plugin), costs in by_plugin.items():
        for begin in range(0, len(costs), MOST_COSTS):
            part = costs[begin : begin + MOST_COSTS]
            yield DeletionCostsDecided(started_at=_time(now), profile=profile, plugin=plugin, costs=part)


def _cost(pod: PodView, cost: int) -> PodCost:
    before = pod.annotations.get(keys.POD_DELETION_COST, "")
    return PodCost(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=pod.node, before=before, after=str(cost))


def seconds_until_next(state: RoundsState | None, interval: float, now: float) -> float:
    """One interval after the last round with a fact, by any leader. 0.0 if it is due, or no round has a fact yet.

    The result is never larger than `interval`, in seconds from start to start. `now`: Unix seconds.
    """
    if state is None or not state.started_at:
        return 0.0
    return min(interval, max(0.0, unix_seconds(state.started_at) + interval - now))
