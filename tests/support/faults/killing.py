"""Kills, pauses and partitions at random while pods are submitted, and what must hold on the way and at the end."""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from koordcore.bus.read.stream_reader import stream_info
from koordcore.embedded.identity import send_signal
from koordcore.embedded.stack import ProcessStatus
from koordctl.access.log import LogTrouble, open_log
from support.faults.constant_load import Load, Watched
from support.faults.three_servers import SERVERS, System, wait_ready
from support.until import until

PATIENCE_SECONDS: Final = 420.0
PODS_PER_SECOND: Final = 8.0
CHECK_EVERY: Final = 100
"""Kills between two complete checks."""
PROGRESS_EVERY: Final = 10
"""Kills after which the next fault waits until a manager has taken a request. Else little would happen in between."""
_PROGRESS_SECONDS: Final = 60.0
_VERIFY_SECONDS: Final = 600.0


class Fault(NamedTuple):
    """One thing that happens to a process or to the routes."""

    kind: str  # A key of `KINDS`
    target: str  # Name of a process; "" for a fault of routes
    seconds: float  # How long a pause or a partition lasts


KINDS: Final = {
    "kill": 45,  # SIGKILL
    "term": 20,  # SIGTERM
    "pause": 15,  # SIGSTOP, then SIGCONT
    "cut off": 8,  # one server loses its routes to the others
    "cut off leader": 8,  # the server that leads the stream of facts loses its routes
    "cut all": 4,  # every server loses all routes
}
"""Kind of fault -> its weight."""
KILLS: Final = ("kill", "term")


def faults(rng: random.Random, services: list[str]) -> Callable[[], Fault]:
    """A function that gives one fault after the other. Half of them hit the nats-servers."""

    def another() -> Fault:
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        names = SERVERS if rng.random() < 0.5 else services
        seconds = rng.uniform(1, 20) if kind == "pause" else rng.uniform(1, 8)
        target = rng.choice(SERVERS if kind == "cut off" else names)
        return Fault(kind, target if kind in (*KILLS, "pause", "cut off") else "", seconds)

    return another


@dataclass(slots=True)
class Report:
    """What has happened so far, and what is wrong.

    Attributes:
        done: Kind of fault -> number of them.
        targets: Process -> number of kills and pauses.
        checks: Number of complete checks.
        pods: Number of submitted pods.
        facts: Number of facts in the log.
        back: Number of pods that a late request has created again after their deletion.
        wrong: One sentence for each broken rule.
    """

    done: Counter[str] = field(default_factory=Counter[str])
    targets: Counter[str] = field(default_factory=Counter[str])
    checks: int = 0
    pods: int = 0
    facts: int = 0
    back: int = 0
    wrong: list[str] = field(default_factory=list[str])

    @property
    def kills(self) -> int:
        """Number of processes that were ended by SIGKILL or SIGTERM."""
        return sum(self.done[kind] for kind in KILLS)

    def line(self, seconds: float) -> str:
        """One line about the progress."""
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        return (
            f"{seconds / 60:6.1f} min: {self.kills} kills ({done}); {self.pods} pods, {self.facts} facts,"
            f" {self.checks} checks, {len(self.wrong)} wrong"
        )


class Killing:
    """The run: faults at random under load, with checks in between.

    Args:
        system: The running system.
        var: Its folder.
        seed: Decides the faults and their order.
        say: Gets a line about the progress.
    """

    def __init__(self, system: System, var: Path, *, seed: int, say: Callable[[str], None]) -> None:
        self.report = Report()
        self._system = system
        self._var = var
        self._rng = random.Random(seed)
        self._say = say
        self._load = Load(system.managers)
        self._watched = Watched()
        self._passing: set[asyncio.Task[None]] = set()  # pauses and partitions that will end
        names = [each.name for each in system.services.status().processes]
        self._another = faults(self._rng, names)
        self._began = time.monotonic()

    async def run(self, *, kills: int | None = None, hours: float | None = None) -> Report:
        """Run until so many processes were killed, or for so long, or until a rule is broken."""
        try:
            await self._load.send("/v1/apply", self._system.nodes)
            while not self.report.wrong and not self._is_over(kills, hours):
                await self._round(min(CHECK_EVERY, (kills or sys.maxsize) - self.report.kills), hours)
        finally:
            await self._load.close()
        return self.report

    def _is_over(self, kills: int | None, hours: float | None) -> bool:
        is_late = hours is not None and time.monotonic() - self._began > hours * 3600
        return is_late or (kills is not None and self.report.kills >= kills)

    async def _round(self, kills: int, hours: float | None) -> None:
        stop = asyncio.Event()
        loading = asyncio.create_task(self._load.run(random.Random(self._rng.random()), PODS_PER_SECOND, stop))
        upto, pause_at = self.report.kills + kills, self.report.kills + PROGRESS_EVERY
        told = time.monotonic()
        while self.report.kills < upto and not self._is_over(None, hours):
            await self._apply(self._another())
            await asyncio.sleep(self._rng.uniform(0.1, 1.5))
            assert not loading.done(), loading.exception()
            if self.report.kills >= pause_at:
                pause_at += PROGRESS_EVERY
                await self._progress()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                await self._look()
                self._say(self.report.line(told - self._began))
        stop.set()
        await self._recover()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await loading
        await self._check()
        self._say(self.report.line(time.monotonic() - self._began))

    async def _apply(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                await self._signal(fault, signal.SIGKILL)
            case "term":
                await self._signal(fault, signal.SIGTERM)
            case "pause":
                if await self._signal(fault, signal.SIGSTOP) is not None:
                    self._later(self._continue_later(fault))
            case _:
                self._later(await self._cut(fault))
        self.report.done[fault.kind] += 1

    def _later(self, work: Coroutine[object, object, None]) -> None:
        self._passing.add(task := asyncio.create_task(work))
        task.add_done_callback(self._passing.discard)

    async def _progress(self) -> None:
        """Wait until a manager has taken the next request, if one does within a minute."""
        before = len(self._load.acknowledged)
        with contextlib.suppress(AssertionError):
            await until(lambda: len(self._load.acknowledged) > before, "a request is taken", seconds=_PROGRESS_SECONDS)

    async def _signal(self, fault: Fault, number: signal.Signals) -> ProcessStatus | None:
        """Send a signal to a process as soon as it runs. Return None if it does not run for a minute."""
        supervisor = self._system.supervisor_of(fault.target)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = supervisor.status().find(fault.target)
            if found is not None and found.process is not None and send_signal(found.process, number):
                self.report.targets[fault.target] += 1
                return found
            await asyncio.sleep(0.05)
        return None

    async def _continue_later(self, fault: Fault) -> None:
        await asyncio.sleep(fault.seconds)
        self._continue(fault.target)

    def _continue(self, name: str) -> None:
        found = self._system.supervisor_of(name).status().find(name)
        if found is not None and found.process is not None:
            send_signal(found.process, signal.SIGCONT)

    async def _cut(self, fault: Fault) -> Coroutine[object, object, None]:
        """Cut routes. Return what heals them after the time of the fault."""
        routes = self._system.routes
        if fault.kind == "cut all":
            routes.split_all()
        else:
            target = fault.target or await self._leader() or SERVERS[0]
            routes.isolate(SERVERS.index(target))

        async def heal() -> None:
            await asyncio.sleep(fault.seconds)
            routes.heal()

        return heal()

    async def _leader(self) -> str | None:
        """Name of the server that leads the stream of facts; None if none says so now."""
        try:
            async with asyncio.timeout(5), open_log() as log:
                info = await stream_info(log.connection, log.names.ev)
        except (LogTrouble, TimeoutError):
            return None
        leader = (info or {}).get("cluster", {}).get("leader")
        return leader if leader in SERVERS else None

    async def _look(self) -> None:
        """Read on in the log, if it answers."""
        try:
            async with asyncio.timeout(30):
                await self._watched.catch_up()
        except TimeoutError:
            return
        self._count()
        findings = self._watched.audit.findings(())
        self.report.wrong += [*findings.double_placements, *findings.overcommitted, *findings.allocations]

    def _count(self) -> None:
        self.report.facts = self._watched.position
        self.report.pods = len(self._load.acknowledged)

    async def _recover(self) -> None:
        """End every pause and partition, and wait until all processes are ready."""
        self._system.routes.heal()
        for task in tuple(self._passing):
            task.cancel()
        for name in (*SERVERS, *(each.name for each in self._system.services.status().processes)):
            self._continue(name)
        await wait_ready(self._system, PATIENCE_SECONDS)

    async def _check(self) -> None:
        """Everything at once: placed, nothing lost, no rule broken, and all folds equal."""
        try:
            await until(self._all_placed, "every live pod is placed", seconds=PATIENCE_SECONDS, every=0.5)
        except AssertionError:
            live = {f"default/{name}" for name in self._load.live}
            self.report.wrong.append(
                f"after {PATIENCE_SECONDS:g} s: missing {sorted(live - self._watched.alive)},"
                f" not deleted {sorted(self._watched.alive - live)}"
            )
        self._count()
        self.report.wrong += [f"two pods have the name {name}" for name in self._watched.doubled]
        lost = {f"default/{name}" for name in self._load.acknowledged} - self._watched.submitted
        self.report.wrong += [f"the acknowledged pod {name} is not in the log" for name in sorted(lost)]
        self.report.wrong += self._watched.audit.findings(()).sentences()
        self.report.wrong += await self._watched.lost()
        self.report.wrong += await self._verify()
        self.report.checks += 1

    async def _all_placed(self) -> bool:
        """Whether exactly the live pods are there, and all are placed.

        A manager that was paused may execute a request long after its client has repeated it elsewhere. A pod that
        was deleted meanwhile is there again, and is deleted again. Of two pods with one name, the leader deletes one.
        """
        if not await self._watched.catch_up() or self._watched.doubled:
            return False
        live = {f"default/{name}" for name in self._load.live}
        back = self._watched.alive - live
        if back & self._watched.deleted:
            self.report.back += len(back)
            await self._load.delete_named([name.partition("/")[2] for name in sorted(back & self._watched.deleted)])
            return False
        return not back and self._watched.alive == live and not self._watched.audit.findings(()).pending

    async def _verify(self) -> list[str]:
        """Return what `koord verify` finds wrong."""
        words = (sys.executable, "-m", "koordctl", "verify", "--timeout", str(_VERIFY_SECONDS))
        found = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "KOORD_VAR": str(self._var)},
        )
        output, _ = await found.communicate()
        return [] if found.returncode == 0 else [f"koord verify ended with {found.returncode}: {output.decode()}"]
