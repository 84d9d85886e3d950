"""Logs details of single decisions (scores, filters, diagnoses). Flags switch them on, also while the scheduler runs.

Source: scheduler-core spec, 13.1, 13.4, 14 (`PUT /debug/flags/...`)
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.pod import NodeScore
from koordcore.service.telemetry.logging import Logger
from koordcore.service.web.debugging import level_of
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.engine.engine import TOP_SCORES
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation

FLAGS: Final = ("v", "s", "f", "d", "db")
Level = Literal["debug", "info", "warning", "error"]


@dataclass(slots=True, kw_only=True)
class DebugFlags:
    """Flags that select which details of decisions are logged."""

    top_scores: int = 0  # Number of best nodes in the table of scores; 0 logs no table
    filters: bool = False  # Whether each filter that refuses nodes is logged
    diagnosis: bool = False  # Whether the diagnosis of each failed attempt is logged
    # Whether a diagnosis is logged before the next decision. If not, a task logs it later, or drops it if too many
    # wait.
    blocking: bool = False

    @property
    def any(self) -> bool:
        return self.top_scores > 0 or self.filters or self.diagnosis


class DecisionLog:
    """Logs the details of decisions that debug flags switch on. The engines return as many best nodes as the table of
    scores shows. `queue_size`: number of diagnoses that may wait to be logged; further ones are dropped.
    """

    def __init__(
        self,
        flags: DebugFlags,
        frameworks: Frameworks,
        logger: Logger,
        *,
        queue_size: int,
        set_level: Callable[[Level], None],
    ) -> None:
        self.flags = flags
        self.dropped = 0  # Number of diagnoses that were not logged, because too many waited
        self._frameworks = frameworks
        self._logger = logger
        self._set_level = set_level
        self._waiting: asyncio.Queue[PodUnschedulable] = asyncio.Queue(queue_size)
        self._name_so_many()

    def change(self, flag: str, value: str) -> None:
        """Set a debug flag that a user has sent with `PUT /debug/flags/FLAG`. `flag`: one of `FLAGS`. Raises
        InvalidInput: the flag does not accept the value; KeyError: There is no such flag.
        """
        match flag:
            case "v":
                self._set_level(level_of(value))
            case "s":
                self.flags.top_scores = _number(value, flag)
                self._name_so_many()
            case "f":
                self.flags.filters = _truth(value, flag)
            case "d":
                self.flags.diagnosis = _truth(value, flag)
            case "db":
                self.flags.blocking = _truth(value, flag)
            case _:
                raise KeyError(flag)

    def tell(self, decision: Placement | list[PodExplanation]) -> None:
        """Diagnoses wait for `write_diagnoses`, unless the flag `db` (blocking) is set."""
        if isinstance(decision, Placement):
            if self.flags.top_scores:
                table = score_table(f"{decision.namespace}/{decision.name}", decision.explanation.top)
                self._logger.info("scores", pod_uid=decision.uid, table=table)
            return
        for explanation in decision:
            if isinstance(explanation.event, PodUnschedulable):
                self._tell_failed(explanation.uid, explanation.event)

    async def write_diagnoses(self) -> None:
        """Log the diagnoses that `tell` queued, until the task is cancelled."""
        while True:
            self._write(await self._waiting.get())

    def _tell_failed(self, uid: str, event: PodUnschedulable) -> None:
        if self.flags.filters:
            pod = f"{event.namespace}/{event.name}"
            for failed in event.diagnosis.failures if event.diagnosis is not None else ():
                self._logger.info(
                    "filter_failed",
                    pod=pod,
                    pod_uid=uid,
                    plugin=failed.plugin,
                    reason=failed.reason,
                    nodes=failed.count,
                    named=failed.nodes,
                )
        if self.flags.diagnosis and event.diagnosis is not None:
            if self.flags.blocking:
                self._write(event)
            elif self._waiting.full():
                self.dropped += 1
            else:
                self._waiting.put_nowait(event)

    def _write(self, event: PodUnschedulable) -> None:
        self._logger.info(
            "diagnosis",
            pod=f"{event.namespace}/{event.name}",
            attempt=event.attempt,
            diagnosis=msgspec.to_builtins(event.diagnosis),
        )

    def _name_so_many(self) -> None:
        for engine in self._frameworks.engines():
            engine.top_scores = max(TOP_SCORES, self.flags.top_scores)


def score_table(pod: str, best: list[NodeScore]) -> str:
    """Return the best nodes of a placement as a Markdown table: `#`, Pod, Node, Score, and a column for each plugin.
    `best`: the nodes with their scores, best first.
    """
    plugins = sorted({plugin for node in best for plugin in node.parts})
    columns = ["#", "Pod", "Node", "Score", *plugins]
    rows = [
        [str(place), pod, node.node, str(node.total), *(str(node.parts.get(plugin, 0)) for plugin in plugins)]
        for place, node in enumerate(best)
    ]
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: str, flag: str) -> int:
    if not value.strip().isdecimal():
        raise InvalidInput("a number, 0 or greater", value, flag)
    return int(value)


def _truth(value: str, flag: str) -> bool:
    text = value.strip().lower()
    if text not in ("true", "false", "1", "0", "t", "f"):
        raise InvalidInput("true or false", value, flag)
    return text in ("true", "1", "t")
