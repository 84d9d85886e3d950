"""Capacity questions: how long the answer takes, and what decisions lose while questions are answered beside them."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from bench.scheduler_perf.beside import Beside
from bench.scheduler_perf.cluster import Cluster, Placement, running_cluster
from bench.scheduler_perf.throughput import Throughput, place, run_once
from bench.scheduler_perf.workloads import BASIC, BY_KEY
from koordcore.bus.factory import BusSettings, open_bus
from koordcore.bus.setup.principals import seed_file
from koordcore.bus.work.requests import ask
from koordcore.requests.catalogue import SCHEDULER_FIT
from koordcore.requests.fit import FitAnswer, FitRequest, PodSet
from koordctl.access.log import key_folder

REPLICAS = 1000
QUESTIONS = 7
EVERY_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
OPERATOR = "operator"

Ask = Callable[[], Awaitable[FitAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the questions to an idle scheduler showed.

    seconds       median from the question to its answer, at the caller
    most_seconds  the slowest answer
    pause_ms      mean pause of the scheduler for one fork
    resident_mib  memory of the scheduler
    """

    seconds: float
    most_seconds: float
    pause_ms: float
    resident_mib: float


async def answers(scale: float, *, profile: bool = False) -> Answers:
    """Ask for 1,000 replicas on 5,000 nodes with 20,000 pods, several times."""
    sized = replace(BY_KEY["basic"], initial=((20_000, BASIC),)).at(scale)
    async with running_cluster(profile=profile) as cluster, _asking(cluster, sized.count(REPLICAS)) as question:
        await cluster.create(sized.objects())
        await place(cluster, sized.initial_pods())
        seconds: list[float] = []
        for _ in range(QUESTIONS):
            began = time.monotonic()
            answer = await question()
            seconds.append(time.monotonic() - began)
            assert answer.fits, answer.sets
        metrics, resident_mib = await cluster.metrics(), cluster.resident_mib()
    pauses = [metrics[f"scheduler_capacity_question_pause_seconds_{part}", ""] for part in ("sum", "count")]
    return Answers(
        seconds=statistics.median(seconds),
        most_seconds=max(seconds),
        pause_ms=1000 * pauses[0] / pauses[1],
        resident_mib=resident_mib,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A run without questions and one with them.

    seconds   durations of the answers in the second run, in the scheduler
    """

    plain: Throughput
    asked: Throughput
    seconds: Sequence[float]

    @property
    def ratio(self) -> float:
        """Rate with questions over the rate without."""
        return self.asked.pods_per_second / self.plain.pods_per_second

    def __str__(self) -> str:
        answers = ", ".join(f"{each:.1f} s" for each in self.seconds)
        cpu = self.asked.cpu_ms / self.plain.cpu_ms
        rates = f"{self.plain.pods_per_second:,.0f} -> {self.asked.pods_per_second:,.0f} pods/s"
        return f"x {self.ratio:.2f}: {rates}, CPU a pod x {cpu:.2f}, answers after {answers}"


async def with_and_without(scale: float, *, profile: bool = False) -> Pair:
    """Run `basic-long` without and with a question of 1,000 replicas every ten seconds."""
    plain, seconds = BY_KEY["basic-long"], list[float]()
    asked = replace(plain, beside=_questions(max(1, round(REPLICAS * scale)), seconds))
    return Pair(
        plain=await run_once(plain.at(scale), profile=profile),
        asked=await run_once(asked.at(scale), profile=profile),
        seconds=seconds,
    )


def _questions(replicas: int, seconds: list[float]) -> Beside:
    async def beside(cluster: Cluster, _nodes: int, _initial: Sequence[Placement], started: asyncio.Event) -> None:
        async with _asking(cluster, replicas) as question:
            started.set()
            while True:
                answer, _ = await asyncio.gather(question(), asyncio.sleep(EVERY_SECONDS))
                seconds.append(answer.seconds)

    return beside


@contextlib.asynccontextmanager
async def _asking(cluster: Cluster, replicas: int) -> AsyncGenerator[Ask]:
    """A question under the name of the operator, because only some users may ask."""
    settings = BusSettings(
        urls=(cluster.log.spec.urls["client"],),
        cluster=cluster.bus.names.cluster,
        user=OPERATOR,
        nkey_seed_file=seed_file(key_folder(cluster.var), OPERATOR),
    )
    request = FitRequest(pods=[PodSet(pod=BASIC("question", 0), replicas=replicas)])
    async with open_bus(settings) as bus:
        connection = bus.connection
        assert connection is not None

        async def question() -> FitAnswer:
            return await ask(connection, bus.names, SCHEDULER_FIT, request, seconds=PATIENCE_SECONDS)

        yield question
