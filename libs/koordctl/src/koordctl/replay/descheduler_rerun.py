"""The engine of `koord replay --rerun-descheduler`: it simulates rounds over a recorded log.

Nothing is written. The recorded cluster and the scheduler's state are folded from the log. A pod that a round moves
counts on its new node until the recording moves or deletes it. The scheduler's engine decides on which node it lands,
on a copy of its state at that moment. Usage moves with the pod.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.config.profiles import proving_profiles
from koord_descheduler.domain.framework.eviction import INITIATOR
from koord_descheduler.domain.plugins.low_node_load import plugin as low_node_load
from koord_descheduler.domain.plugins.low_node_load.arguments import LowNodeLoadArgs, NodePoolArgs
from koord_descheduler.domain.plugins.low_node_load.load import measured
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.dry_run import is_created
from koord_descheduler.domain.rounds.moves import Move, moved, staying
from koord_descheduler.domain.rounds.player import RoundPlayer, Start, later_round, start_of_round
from koord_descheduler.domain.rounds.proving import Judged, judge
from koord_descheduler.domain.view.building import KINDS, ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_scheduler.domain.fit.answering import answer_question
from koord_scheduler.domain.loop.folding.log import fold, skip
from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.nodestate import PodsEvictedByAgent
from koordcore.events.observation import NodeUsageReported
from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.state import ClusterState
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds
from numpy.typing import NDArray

from koordctl.access.log import LogTrouble
from koordctl.replay.usage_reports import UsageReport

DESCHEDULER_FOLD: Final = "descheduler"
"""Name of the descheduler's fold."""
_DEFAULT_HOT: Final = {"cpu": 75.0, "memory": 80.0}
"""A node is hot above these percentages if the configuration has no LowNodeLoad."""
_EXPIRES_SECONDS: Final = 300.0
_SLOWDOWN: Final = "lsSlowdown"
_BINS: Final = 20
Ask = Callable[[FitRequest, float], FitAnswer]


def on_a_copy(work: Callable[[], bytes]) -> bytes:
    """Run a function on a copy of this process, and return its result. Its changes of memory are lost.

    The function must not use connections or locks of other threads.

    Raises:
        LogTrouble: The function raised an exception. Its trace is on standard error.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(work())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise LogTrouble("the scheduler could not answer a question about the recorded state")
    return result


@dataclass(slots=True, kw_only=True)
class Figures:
    """Numbers about a cluster in the window."""

    evictions: int = 0  # Evictions by the descheduler
    agent_evictions: int = 0
    hot_minutes: float = 0.0  # Sum over the nodes of the minutes in which they were hot
    # Mean time of latency-sensitive requests divided by their time on an idle node; None if unmeasured.
    slowdown: float | None = None


@dataclass(slots=True, kw_only=True)
class DescheduleComparison:
    """The recorded cluster compared with one in which a descheduler of a configuration ran."""

    started: int = 0  # Position of the snapshot from which the run started; 0: it started at the first fact
    rounds: int = 0  # Number of rounds that were played
    reports: int = 0  # Number of usage reports that were used
    archived: int = 0  # Number of them that came from the projector's archive. The others came from their stream.
    first_report: str = ""  # Time of the first one, RFC 3339; "": there is none
    # Moves of the re-run with Unix seconds, in order.
    moves: list[tuple[float, Move]] = field(default_factory=list[tuple[float, Move]])
    without_place: int = 0  # Number of choices of a plugin without a place
    without_gain: int = 0  # Number of choices of a plugin whose move would not make the cluster better
    faults: list[str] = field(default_factory=list[str])  # Errors of plugins
    recorded: Figures = field(default_factory=Figures)
    rerun: Figures = field(default_factory=Figures)  # Figures of the re-run


def scheduler_at(state: SchedulerState) -> Ask:
    """Return a function that answers capacity questions with the scheduler's engine, on a copy of `state`.

    The function takes the question and the Unix time in seconds. `state` itself is never changed.
    """

    def ask(request: FitRequest, now: float) -> FitAnswer:
        def work() -> bytes:
            return msgspec.json.encode(answer_question(state, request, now, lambda other: ask(other, now)))

        return msgspec.json.decode(on_a_copy(work), type=FitAnswer)

    return ask


class DeschedulerRerun:
    """Simulates rounds over a recorded log.

    The first round begins with the anomaly detectors, jobs in flight and counted evictions that are recorded then.

    Args:
        configuration: The configuration to try.
        state: A scheduler's state: empty, or that of a snapshot; the log is folded into it.
        cluster: State of the cluster at a snapshot; None: before the first fact.
        interval: Seconds between two rounds.
        begin: Position after which rounds are simulated.
        skipped: Positions that the descheduler was told to skip.
        skipped_by_scheduler: Positions that the scheduler was told to skip.
    """

    def __init__(
        self,
        configuration: DeschedulerConfiguration,
        state: SchedulerState,
        *,
        interval: float,
        begin: int,
        cluster: ClusterState | None = None,
        skipped: Set[int] = frozenset(),
        skipped_by_scheduler: Set[int] = frozenset(),
    ) -> None:
        self._builder = ViewBuilder()
        if cluster is not None:
            self._builder.load(cluster)
        self._state = state
        self.found = DescheduleComparison(started=self.starts_behind)
        self._ask = scheduler_at(state)
        self._configuration = configuration
        self._proving = proving_profiles(configuration)
        self._interval = interval
        self._begin = begin
        self._skipped, self._skipped_by_scheduler = skipped, skipped_by_scheduler
        self._pool, self._expires = _hot_pool(configuration)
        self._player: RoundPlayer | None = None
        self._start: Start | None = None
        self._next_round = 0.0
        self._targets: dict[str, str] = {}
        self._origins: dict[str, str] = {}
        self._slow: dict[str, float] = {}
        self._slowdowns = array("d")  # three numbers each: slowdown, load in the recording, load in the re-run
        self._hot: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())

    @property
    def starts_behind(self) -> int:
        """Position after which `run` needs all facts: the older one of the positions of the two loaded states."""
        return min(self._builder.state.position, self._state.log.position)

    def run(
        self, events: Sequence[StoredEvent], reports: Iterable[UsageReport], progress: Callable[[int], None]
    ) -> DescheduleComparison:
        """Args:
            events: All facts behind `starts_behind` up to the end of the window, in order.
            reports: Usage reports in the order of their times. They are read as far as the events go.
            progress: Called with positions of the log.

        Raises:
            UnreadableEvent: An event cannot be decoded.
            InvalidInput: A plugin cannot be made, for example because a PriorityClass does not exist.
        """
        in_order = iter(reports)
        report = next(in_order, None)
        for stored in events:
            while report is not None and report.at <= stored.occurred_at:
                self._observe(report)
                report = next(in_order, None)
            self._apply(stored)
            progress(stored.seq)
        last = events[-1].occurred_at if events else ""
        self._play_until(unix_seconds(last))
        self._sum_up()
        return self.found

    def _apply(self, stored: StoredEvent) -> None:
        if stored.seq > self._begin:
            self._play_until(unix_seconds(stored.occurred_at))
        event = None
        if stored.seq in self._skipped or stored.ref.kind not in KINDS:
            self._builder.skip(stored.seq)
        else:
            event = self._builder.apply(stored)  # like the scheduler's fold, it ignores what a snapshot has
        if stored.seq in self._skipped_by_scheduler:
            skip(self._state, stored.seq)
        else:
            fold(self._state, stored)
        if stored.seq <= self._begin:
            return
        if isinstance(event, PodEvictionRequested) and event.initiator == INITIATOR:
            self.found.recorded.evictions += 1
        elif isinstance(event, PodsEvictedByAgent):
            node, (hot, still_hot) = name_from_token(stored.ref.id), self._hot
            self.found.recorded.agent_evictions += len(event.pods)
            cooled = node in hot and node not in still_hot
            self.found.rerun.agent_evictions += sum(not cooled and pod.uid not in self._targets for pod in event.pods)

    def _observe(self, found: UsageReport) -> None:
        stored = found.stored
        report = CATALOGUE.read(stored)
        assert isinstance(report, NodeUsageReported)
        self.found.reports += 1
        self.found.archived += found.is_archived
        self.found.first_report = self.found.first_report or found.at
        self._builder.observe(stored.ref.id, report, stored.seq)
        if _SLOWDOWN in report.signals:
            self._slow[name_from_token(stored.ref.id)] = report.signals[_SLOWDOWN] / 100

    def _play_until(self, now: float) -> None:
        """Play the rounds that begin at or before `now`. The first round begins with the window."""
        if not self._next_round:
            self._next_round = now
        while self._next_round and self._next_round <= now:
            self._round(self._next_round)
            self._next_round += self._interval

    def _round(self, now: float) -> None:
        if self._start is None or self._player is None:
            self._start = start = start_of_round(self._builder, now, self._configuration, BUILT_IN)
            self._player = RoundPlayer(self._configuration, BUILT_IN, start.shared, start.jobs)
        else:
            start = later_round(self._start, self._builder, now)
            self._player.jobs = start.jobs
        recorded = start.cluster
        self._forget_gone(recorded)
        cluster = moved(recorded, self._targets, 0.0)
        self._measure(recorded, cluster)
        try:
            outcome = self._player.play(cluster)
        except InvalidInput:  # a cluster of one node
            return
        self.found.rounds += 1
        self.found.faults += [f"{each.plugin} of {each.profile}: {each.text}" for each in outcome.faults]
        chosen = {each.pod.uid: each for each in outcome.attempts if each.is_move}
        if not chosen:
            return
        found = self._judged(cluster, [*chosen.values()], now)
        self.found.without_place += len(found.homeless)
        self.found.without_gain += len(found.useless)
        created = [each for each in chosen.values() if is_created(each, found.targets, self._proving)]
        leaving = self._player.leaving(created, found.targets, cluster)
        if not leaving >= found.targets.keys():  # the room of a pod that stays may have been given to another one
            found = self._judged(cluster, [each for uid, each in chosen.items() if uid in leaving], now)
        for uid, target in found.targets.items():
            attempt = chosen[uid]
            move = Move(pod=attempt.pod, target=target, plugin=attempt.plugin, reason=attempt.reason)
            self.found.moves.append((now, move))
            self._origins.setdefault(uid, recorded.pod_by_uid[uid].node)
            self._targets[uid] = target

    def _judged(self, cluster: ClusterView, chosen: Sequence[Any], now: float) -> Judged:
        """Ask where chosen pods land while the pods that were moved before stay on their new nodes."""
        asking = judge(cluster, chosen, self._proving)
        try:
            question = next(asking)
            while True:
                leaving = {*question.leaving}
                kept = [cluster.pod_by_uid[uid] for uid in self._targets if uid not in leaving]
                whole = msgspec.structs.replace(
                    question,
                    pods=[*(staying(pod) for pod in kept), *question.pods],
                    leaving=[*(pod.uid for pod in kept), *question.leaving],
                )
                question = asking.send(self._ask(whole, now))
        except StopIteration as end:
            found: Judged = end.value
            return found

    def _forget_gone(self, recorded: ClusterView) -> None:
        """Forget moved pods that the recording has deleted, ended or moved itself."""
        for uid in list(self._targets):
            pod = recorded.pod_by_uid.get(uid)
            if pod is None or pod.is_finished or pod.node != self._origins[uid]:
                del self._targets[uid], self._origins[uid]

    def _measure(self, recorded: ClusterView, cluster: ClusterView) -> None:
        """Count hot nodes, and note how slow latency-sensitive requests are, with the load of each node."""
        before, after = (dict(self._loads(each)) for each in (recorded, cluster))
        self._hot = (_hot(before), _hot(after))
        minutes = self._interval / 60
        self.found.recorded.hot_minutes += minutes * len(self._hot[0])
        self.found.rerun.hot_minutes += minutes * len(self._hot[1])
        for name, slowdown in self._slow.items():
            if name in before and name in after:
                self._slowdowns.extend((slowdown, before[name][1], after[name][1]))

    def _loads(self, cluster: ClusterView) -> Iterator[tuple[str, tuple[bool, float]]]:
        """(name, (whether the node is hot, used share of its cpu)) of each node with a measured load."""
        load = measured(self._pool, cluster.nodes, cluster, self._expires)
        hot = [bool(row.any()) for row in load.over(prod=False)]
        cpu = load.resources.index("cpu") if "cpu" in load.resources else 0
        for row, node in enumerate(load.nodes):
            capacity = int(load.capacity[row, cpu])
            yield node.name, (hot[row], int(load.usage[row, cpu]) / capacity if capacity else 0.0)

    def _sum_up(self) -> None:
        """Estimate the slowdown of the re-run.

        A node whose load changed gets the mean slowdown that the recording shows at such a load.
        """
        self.found.rerun.evictions = len(self.found.moves)
        if not self._slowdowns:
            return
        table: NDArray[np.float64] = np.frombuffer(self._slowdowns, dtype=np.float64)
        slow, before, after = table[0::3], table[1::3], table[2::3]
        edges = np.linspace(0.0, max(float(before.max()), 1e-9), _BINS + 1)
        place = np.clip(np.digitize(before, edges) - 1, 0, _BINS - 1)
        counts = np.bincount(place, minlength=_BINS)
        known = counts > 0
        means = np.bincount(place, weights=slow, minlength=_BINS)[known] / counts[known]
        middles = ((edges[:-1] + edges[1:]) / 2)[known]
        changed = ~np.isclose(before, after)
        self.found.recorded.slowdown = float(slow.mean())
        self.found.rerun.slowdown = float(np.where(changed, np.interp(after, middles, means), slow).mean())


def _hot(loads: dict[str, tuple[bool, float]]) -> frozenset[str]:
    return frozenset(name for name, (is_hot, _) in loads.items() if is_hot)


def _hot_pool(configuration: DeschedulerConfiguration) -> tuple[NodePoolArgs, float]:
    """The thresholds above which a node is hot, and the age in seconds at which a report expires."""
    for profile in configuration.profiles:
        if any(each.name == low_node_load.NAME for each in profile.plugins.balance.enabled):
            args: LowNodeLoadArgs = profile_args(profile, low_node_load.NAME, BUILT_IN)
            return args.node_pools[0], args.node_metric_expiration_seconds
    return NodePoolArgs(high_thresholds=_DEFAULT_HOT, low_thresholds={}), _EXPIRES_SECONDS
