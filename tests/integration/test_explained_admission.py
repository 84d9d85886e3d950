"""`koord explain pod` on a pod whose name the API server made after a webhook had changed it: read from a real log."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest
from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided, admission_ref
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.objects import PodSpecAdded
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339
from koordctl.app import app
from support.bus.bus_worlds import Place, opened
from typer.testing import CliRunner

pytestmark = pytest.mark.nats
NAME = "web-7d4-x2k9p"


@pytest.fixture
async def place(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        monkeypatch.setenv("KOORD_NATS", nats_url)
        monkeypatch.setenv("KOORD_CLUSTER", found.bus.names.cluster)
        yield found


def origin(cause: str) -> Origin:
    return Origin(causation_id=cause, correlation_id="u", actor="test", occurred_at=rfc3339(datetime.now(UTC)))


async def decide(place: Place, request: str, steps: list[str], *, name: str = "web-7d4-") -> None:
    verdict = AdmissionDecided(
        uid=request,
        source="webhook",
        webhook="mutate",
        resource="pods",
        namespace="shop",
        name=name,
        operation="CREATE",
        allowed=True,
        steps=steps,
    )
    await place.bus.explanations.publish(admission_ref("pods", "shop", request), verdict, origin(request))


async def test_the_verdict_is_found_by_when_the_pod_was_stored(place: Place) -> None:
    await decide(place, "r-1", ["ClusterColocationProfile/batch"])
    await decide(place, "r-2", ["ClusterColocationProfile/other"], name="other-1-")
    metadata = {"namespace": "shop", "name": NAME, "uid": "u", "creationTimestamp": rfc3339(datetime.now(UTC))}
    added = PodSpecAdded(object=codec.convert({"metadata": metadata}, Pod))
    seen = CATALOGUE.seal([Draft(AggregateRef("podspec", "u"), added, 0)], origin("watch"))
    assert isinstance(await place.bus.events.append(seen), Appended)

    shown = await asyncio.to_thread(CliRunner().invoke, app, ["explain", "pod", NAME, "-n", "shop", "--uid", "u"])

    assert "create, changed by ClusterColocationProfile/batch" in shown.output
    assert "ClusterColocationProfile/other" not in shown.output
    assert shown.exit_code == 0
