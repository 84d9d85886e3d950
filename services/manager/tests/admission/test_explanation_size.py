"""What is told of a decision has a bounded size, whatever was asked."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recorded_object import MAX_VIOLATIONS, recorded_violations
from koord_manager.domain.admission.request import AdmissionDecision, Violation
from koord_manager.shell.documents.explanations import MAX_NAME, Occasion, Subject, tell
from koordcore.bus.adapters.memory import MemoryObservationLog
from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided, admission_ref
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.telemetry.logging import Logger, logger
from koordcore.values import codec
from structlog.testing import capture_logs

LARGE = "x" * 2_000_000
MOST_BYTES = 256 * 1024
POD = Subject("u-1", "webhook", "pods", "default", "p", "CREATE", webhook="mutate")


@dataclass
class World:
    """Where decisions are told."""

    explanations: ObservationLog | None = field(default_factory=MemoryObservationLog)
    actor: str = "manager"
    logger: Logger = field(default_factory=lambda: logger("test"))
    options: Options = field(default_factory=Options)


async def told(subject: Subject, decision: AdmissionDecision, *patch: dict[str, Any]) -> AdmissionDecided:
    stored = await message(subject, decision, *patch)
    assert len(stored.body) + len(codec.encode(stored.headers)) < MOST_BYTES
    event = CATALOGUE.read(stored)
    assert isinstance(event, AdmissionDecided)
    return event


async def message(subject: Subject, decision: AdmissionDecision, *patch: dict[str, Any]) -> StoredEvent:
    world = World()
    await tell(world, subject, decision, patch, Occasion("2026-01-01T00:00:00.000000Z", "", 1))
    assert world.explanations is not None
    async for batch in world.explanations.follow(0):
        return batch[0]
    raise AssertionError


def broken(count: int, where: str = "f") -> AdmissionDecision:
    return AdmissionDecision(object=None, violations=[Violation(rule="gpu-zero", field=where, message=where)] * count)


async def test_of_a_large_patch_the_beginning_is_told() -> None:
    first = {"op": "add", "path": "/metadata/labels/a", "value": "b"}
    large = {"op": "add", "path": "/metadata/annotations/a", "value": LARGE}

    event = await told(POD, AdmissionDecision(object={}, steps=("ClusterColocationProfile/p",)), first, large, first)

    assert event.patch == [first]


@pytest.mark.parametrize("decision", [broken(50_000), broken(1, LARGE), broken(50_000, "f" * 1000)])
async def test_of_many_violations_the_beginning_is_told(decision: AdmissionDecision) -> None:
    event = await told(POD, decision)
    rules, fields = recorded_violations(decision.violations)

    assert len(event.rules) == len(event.fields) <= MAX_VIOLATIONS
    assert (event.rules, event.fields) == (rules, fields)


@pytest.mark.parametrize(
    ("name", "metadata", "decision", "told_as"),
    [
        ("web", {"name": "web"}, AdmissionDecision(object={}), "web"),
        ("web-7d4-", {"generateName": "web-7d4-"}, AdmissionDecision(object={}), "u-1"),
        ("web-7d4-", {"generateName": "web-7d4-"}, broken(1), "web-7d4-"),
        ("web-7d4-x2k9p", {"name": "web-7d4-x2k9p", "generateName": "web-7d4-"}, broken(1), "web-7d4-"),
        ("web.*", {"generateName": "web.*"}, broken(1), "u-1"),
        ("-" * 300, {"generateName": "-" * 300}, broken(1), "u-1"),
        ("", {"generateName": 7}, broken(1), "u-1"),
        ("web", "no metadata", broken(1), "web"),
    ],
)
async def test_pods_without_a_name_go_by_their_request_and_refused_ones_by_what_their_name_was_to_begin_with(
    name: str, metadata: object, decision: AdmissionDecision, told_as: str
) -> None:
    stored = await message(POD._replace(name=name, object={"metadata": metadata}), decision)
    assert stored.ref == admission_ref("pods", "default", told_as)


async def test_names_of_any_length_are_cut_in_the_verdict_and_in_the_log() -> None:
    subject = POD._replace(uid=LARGE, name=LARGE, namespace=LARGE, user=LARGE)

    with capture_logs() as lines:
        event = await told(subject, broken(50_000))

    assert event.uid == event.name == event.namespace == LARGE[:MAX_NAME]
    assert len(codec.encode(lines)) < 16 * 1024
