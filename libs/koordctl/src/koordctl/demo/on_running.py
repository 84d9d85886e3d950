"""The demo on a system that runs already, for example on docker compose: submit the trace's pods and check the log.

The nodes of the trace are simulated by an agent of that system. It reads them from the file of `--write-nodes`.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import httpx

from koordctl.access.clients import find_service
from koordctl.access.credentials import authorization, tls_context
from koordctl.access.log import open_log
from koordctl.demo.submitting import (
    WARM_UP_SECONDS,
    Watching,
    register_nodes,
    settle,
    submit_pods,
    wait_until,
)
from koordctl.demo.summary import Checks, count_reasons, percentile, reckon
from koordctl.demo.tail import Tail
from koordctl.demo.trace import TraceNode, TracePod
from koordctl.render.output import fail
from koordctl.render.units import by_count, duration_text

REAL_TIME: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDemo:
    nodes: Sequence[TraceNode]  # Nodes of the trace, which an agent of the system simulates
    pods: Sequence[TracePod]  # Pods of the trace, in order
    seconds: float  # Real time during which pods arrive


class RunningSummary(Checks, frozen=True, kw_only=True):
    pods: int  # Number of pods in the log that were not deleted; `placed` and `running` of them
    placed: int
    running: int
    pending_reasons: dict[str, int]  # Reason -> number of pending pods
    placed_p50_ms: float  # Median time from submission to placement, in real milliseconds
    placed_p99_ms: float  # 99th percentile of this time
    events: int  # Number of facts in the log

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("pods", f"{self.pods:,}"),
            ("pods placed", f"{self.placed:,}"),
            ("pods running on their nodes", f"{self.running:,}"),
            ("pods pending", f"{self.pods - self.placed:,}"),
            *((f"  {reason}", f"{count:,}") for reason, count in by_count(self.pending_reasons)),
            ("submit to placed, p50", duration_text(self.placed_p50_ms / 1000)),
            ("submit to placed, p99", duration_text(self.placed_p99_ms / 1000)),
            ("events", f"{self.events:,}"),
        ]


async def run_on_running(demo: RunningDemo, watching: Watching) -> RunningSummary:
    """Submit the trace's nodes and pods to the running system, and check its log.

    If no system runs, or no agent simulates the nodes, end the command with an error.

    Raises:
        EmbeddedError: The manager refused a document or does not answer.
        LogTrouble: The log cannot be used.
    """
    manager = find_service("manager")
    if manager is None:
        fail("no system runs here: set KOORD_MANAGER, KOORD_PROJECTOR and KOORD_NATS, or start one with `koord up`")
    async with AsyncExitStack() as resources:
        client = await resources.enter_async_context(
            httpx.AsyncClient(
                base_url=manager, timeout=60, trust_env=False, headers=authorization(), verify=tls_context()
            )
        )
        log = await resources.enter_async_context(open_log())
        tail = Tail()
        tailing = asyncio.create_task(tail.follow(log))
        resources.callback(tailing.cancel)

        # 1. nodes; best-effort pods need reports of the nodes before they can be placed
        watching.step(f"registering {len(demo.nodes):,} simulated nodes")
        began = time.monotonic()
        await register_nodes(client, demo.nodes, REAL_TIME)
        with_gpus = sum(bool(node.gpus) for node in demo.nodes)
        if not await wait_until(
            lambda: len(tail.overcommit) >= len(demo.nodes) and len(tail.devices) >= with_gpus, tail, WARM_UP_SECONDS
        ):
            fail(
                f"batch resources are published for {len(tail.overcommit):,} of {len(demo.nodes):,} nodes after"
                f" {duration_text(WARM_UP_SECONDS)}: does an agent simulate the nodes of --write-nodes?"
            )
        watching.step(
            f"batch resources are published for {len(tail.overcommit):,} nodes, devices for {len(tail.devices):,},"
            f" after {duration_text(time.monotonic() - began)}"
        )

        # 2. the pods, in the trace's order
        watching.step(f"sending {len(demo.pods):,} pods")

        async def sent(pods: int) -> None:
            watching.progress(tail.counts(pods, len(demo.pods)))

        await submit_pods(client, demo.pods, demo.seconds, sent)
        await settle(len(demo.pods), tail, watching)

        # 3. three folds, every invariant from the events alone
        found = await reckon(log, manager, watching.step)
    audit, findings = found.audit, found.findings
    return RunningSummary(
        **found.checks(),
        pods=findings.submitted,
        placed=findings.placed,
        running=findings.started,
        pending_reasons=count_reasons(findings.pending, found.reasons),
        placed_p50_ms=round(percentile(audit.waits_ms, 50), 2),
        placed_p99_ms=round(percentile(audit.waits_ms, 99), 2),
        events=audit.events,
    )
