"""A log or a bucket that takes nothing more: the controllers try again at growing intervals, and then all is stored."""

from collections.abc import Callable, Sequence

from koord_manager.cycle import run_cycle
from koord_manager.domain.cluster.work_queue import FIRST_DELAY_SECONDS
from koord_manager.shell.reconcile import FULL_SECONDS
from koordcore.bus.adapters.desired import BucketRefused
from koordcore.bus.adapters.memory import MemoryDesiredStore, MemoryEventLog, MemoryLog
from koordcore.events.envelope import NewEvent
from koordcore.ports.desired import DesiredNode
from koordcore.ports.eventlog import AppendOutcome
from structlog.testing import capture_logs
from support.manager.loops import CONFIG, NODE, Manager, running

CYCLES = 5


class CountedLog(MemoryEventLog):
    """Counts the appends."""

    appends = 0

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        self.appends += 1
        return await super().append(events, deadline=deadline)


class FullBucket(MemoryDesiredStore):
    """Refuses each write of a desired state, and counts them."""

    writes = 0

    async def put(self, desired: DesiredNode, check: Callable[[], None] | None = None) -> None:
        self.writes += 1
        raise BucketRefused("desired: 503/10047 insufficient storage resources available")


async def cycles(manager: Manager, count: int = CYCLES) -> None:
    for _ in range(count):
        await run_cycle(manager.context, manager.policies)


async def test_a_full_log_is_tried_at_growing_intervals_and_told_once_for_each() -> None:
    log = MemoryLog()
    manager, counted = Manager(log), CountedLog(log)
    manager.context = manager.context._replace(log=counted)
    async with running(manager):
        await manager.apply(NODE)
        await manager.apply(CONFIG)
        log.max_events, begun = log.last_seq, counted.appends
        with capture_logs() as lines:
            for delay in (0.0, FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS):
                await manager.clock.advance(delay)
                before = counted.appends
                await cycles(manager, 1)
                tried = counted.appends
                assert tried > before
                await cycles(manager)
                assert counted.appends == tried
        told = [line for line in lines if line["event"] == "log_full"]
        assert len(told) == counted.appends - begun
        assert not [line for line in lines if line["event"] == "decision_refused"]
        log.max_events = None
        await manager.clock.advance(FULL_SECONDS)
        await cycles(manager)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert policy.slo
        assert policy.metric_policy


async def test_a_full_bucket_is_tried_at_growing_intervals() -> None:
    manager, bucket = Manager(MemoryLog()), FullBucket()
    manager.context = manager.context._replace(desired=bucket)
    async with running(manager):
        await manager.apply(NODE)
        await cycles(manager)
        for delay in (FIRST_DELAY_SECONDS, 2 * FIRST_DELAY_SECONDS):
            await manager.clock.advance(delay)
            before = bucket.writes
            await cycles(manager)
            assert bucket.writes == before + 1
