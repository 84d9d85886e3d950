"""`koord explain pod` of a pod that fits on none of 1,500 nodes.

The real scheduler explains, and the real command reads it from a real log, on a terminal of 100 columns and 30 lines.
"""

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import PodSpecAdded
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Pod
from koordcore.stories.pending import pending_sentence
from koordcore.values.timestamps import rfc3339
from support.bus.bus_worlds import Place, opened
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod

pytestmark = pytest.mark.nats
COLUMNS, LINES = 100, 30
TEAMS = 24
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"


@pytest.fixture
async def place(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        monkeypatch.setenv("KOORD_NATS", nats_url)
        monkeypatch.setenv("KOORD_CLUSTER", found.bus.names.cluster)
        yield found


def refused_by_all() -> tuple[Pod, PodUnschedulable]:
    """A pod, and why none of 1,500 nodes of many kinds takes it."""
    log = SmallLog()
    for number in range(1500):
        taint = {"key": f"team-{number % TEAMS}/reserved", "value": "for-its-own-pods-only", "effect": "NoSchedule"}
        gpus = {CORE: "100", RATIO: "100"} if number % 3 else {}
        log.add_node(
            node(
                f"node-with-a-long-name-{number:04}.example.internal",
                cpu=str(4 + number % 29),
                memory=f"{8 << number % 4}Gi",
                taints=[taint] if number < 500 else (),
                unschedulable=500 <= number < 520,
                more={"kubernetes.io/batch-cpu": str(number), **gpus},
            )
        )
    waits = pod("waits", {"cpu": "31", "memory": "60Gi", "kubernetes.io/batch-cpu": "1480", CORE: "200", RATIO: "200"})
    scheduler = Scheduler(log)
    log.add_pod(waits)
    scheduler.run()
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    return waits, event


def origin(cause: str, based_on: int = 0) -> Origin:
    now = rfc3339(datetime.now(UTC))
    return Origin(causation_id=cause, correlation_id="u", actor="test", occurred_at=now, based_on=based_on)


def on_a_terminal(*words: str) -> list[str]:
    """The lines that the command prints on a terminal."""
    terminal, stream = pty.openpty()
    fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    # A run under another terminal or CI may say something else about the terminal.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    koord = Path(sys.executable).with_name("koord")
    process = subprocess.Popen(
        [koord, *words], stdin=stream, stdout=stream, stderr=stream, env={**environment, "TERM": "dumb"}
    )
    os.close(stream)
    output = b""
    try:
        while chunk := os.read(terminal, 65536):
            output += chunk
    except OSError:  # the command has ended and nobody has the terminal open
        pass
    finally:
        os.close(terminal)
    assert process.wait(60) == 0, output.decode()
    return output.decode().splitlines()


async def test_the_explanation_of_1500_nodes_fits_on_a_screen(place: Place) -> None:
    waits, event = refused_by_all()
    uid = waits.metadata.uid
    assert event.diagnosis is not None
    assert len(event.diagnosis.failures) > TEAMS
    seen = CATALOGUE.seal([Draft(AggregateRef("podspec", uid), PodSpecAdded(object=waits), 0)], origin("watch"))
    assert isinstance(await place.bus.events.append(seen), Appended)
    for attempt in range(1, 21):
        told = msgspec.structs.replace(event, attempt=attempt, message=f"{event.message} {attempt}")
        await place.bus.explanations.publish(AggregateRef("pod", uid), told, origin(f"t-{attempt}", 1))

    asked = ["explain", "pod", "waits", "--uid", uid]
    shown = await asyncio.to_thread(on_a_terminal, *asked)
    assert len(shown) < LINES  # the prompt takes a line, too
    assert max(map(len, shown)) <= COLUMNS
    assert shown[0] == "Pod default/waits: Pending"
    text = " ".join(" ".join(shown).split())
    assert pending_sentence(event) in text
    assert "first of 19 earlier explanations: --all shows them" in text
    assert "0 of 1500 nodes fit (attempt 20)" in text
    assert "node-with-a-long-name" not in text

    named = await asyncio.to_thread(on_a_terminal, *asked, "--nodes")
    assert len(named) > LINES
    assert any("node-with-a-long-name" in line for line in named)
    every = await asyncio.to_thread(on_a_terminal, *asked, "--all")
    assert sum("  unschedulable   " in line for line in every) == 20
