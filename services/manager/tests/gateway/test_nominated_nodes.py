"""The gateway writes and clears the nominated nodes of its own scheduler, and leaves those of others alone."""

import asyncio
from typing import Any

import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pending_writes import PendingWrites
from koord_manager.shell.gateway import event_recorder
from koord_manager.shell.gateway.api import ApiResponse
from koord_manager.shell.gateway.event_recorder import ATTEMPTS
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.events.pod import PodNominated, PodNominationCleared
from koordcore.protocol.objects import ObjectMeta, Pod, PodStatus
from support.histories.recording import stored
from support.manager.event_recording import recording
from support.until import until


class StatusApi:
    """An API server that remembers the nominated nodes that are written. It answers `away` requests by 503 first."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.written: list[str | None] = []

    async def request(self, method: str, path: str, *, body: dict[str, Any], **_: Any) -> ApiResponse:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            return ApiResponse(503, b"{}")
        self.written.append(body["status"]["nominatedNodeName"])
        return ApiResponse(200, b"{}")


class Story:
    """One pod: what the API server says of it, and what the scheduler decides."""

    def __init__(self) -> None:
        self.view, self.pending = ManagerView(), PendingWrites()
        self.seq = 0

    def status(self, node: str) -> None:
        status = PodStatus(nominated_node_name=node)
        pod = Pod(metadata=ObjectMeta(name="web", namespace="d", uid="u"), status=status)
        self.fold("podspec", PodSpecChanged(object=pod) if self.seq else PodSpecAdded(object=pod))

    def nominated(self, node: str) -> None:
        self.fold("pod", PodNominated(namespace="d", name="web", node=node, plugin="x"))

    def cleared(self, node: str) -> None:
        self.fold("pod", PodNominationCleared(namespace="d", name="web", node=node, reason="outranked"))

    def fold(self, kind: str, event: Event) -> None:
        self.seq += 1
        ref = AggregateRef(kind, "u")
        self.view.fold(stored(self.seq, Draft(ref, event, 0)))
        self.pending.note(self.view, [(ref, event)])


@pytest.mark.parametrize(
    ("status", "written"),
    [("a", [None]), ("", []), ("autoscalers-choice", [])],
    ids=["ours", "cleared by somebody else", "of somebody else"],
)
async def test_only_a_nomination_of_our_scheduler_is_cleared(status: str, written: list[str | None]) -> None:
    story, api = Story(), StatusApi()
    story.status(status)
    story.cleared("a")
    async with recording(api, story.pending, story.view) as recorder:
        recorder.wake()
        await until(lambda: recorder.is_idle)
    assert api.written == written


async def test_own_nomination_is_cleared_before_its_write_is_seen_again() -> None:
    story, api = Story(), StatusApi()
    story.status("")
    story.nominated("a")
    async with recording(api, story.pending, story.view) as recorder:
        recorder.wake()
        await until(lambda: recorder.is_idle)
        story.cleared("a")
        recorder.wake()
        await until(lambda: recorder.is_idle)
    assert api.written == ["a", None]


async def test_new_nomination_takes_the_place_of_a_clearing_that_waits() -> None:
    story, api = Story(), StatusApi()
    story.status("a")
    story.cleared("a")
    story.nominated("b")
    async with recording(api, story.pending, story.view) as recorder:
        recorder.wake()
        await until(lambda: recorder.is_idle)
    assert api.written == ["b"]


async def test_own_nomination_is_cleared_while_an_earlier_one_is_still_seen() -> None:
    story, api = Story(), StatusApi()
    story.status("a")
    story.nominated("b")
    async with recording(api, story.pending, story.view) as recorder:
        recorder.wake()
        await until(lambda: recorder.is_idle)
        story.cleared("b")
        recorder.wake()
        await until(lambda: recorder.is_idle)
    assert api.written == ["b", None]


@pytest.mark.parametrize("node", ["a", ""], ids=["a nomination", "its end"])
async def test_what_the_api_server_cannot_take_now_is_written_later(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "LATER_SECONDS", 0.01)
    story, api = Story(), StatusApi(away=2 * ATTEMPTS)
    story.status("" if node else "a")
    if node:
        story.nominated(node)
    else:
        story.cleared("a")
    async with recording(api, story.pending, story.view) as recorder:
        recorder.wake()
        await until(lambda: recorder.is_idle)
    assert api.written == [node or None]


async def test_a_nomination_that_has_ended_meanwhile_is_not_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "LATER_SECONDS", 0.2)
    story, api = Story(), StatusApi(away=ATTEMPTS)
    story.status("")
    story.nominated("a")
    async with recording(api, story.pending, story.view) as recorder:
        recorder.wake()
        await until(lambda: not api.away)
        story.cleared("a")
        recorder.wake()
        await until(lambda: recorder.is_idle)
    assert api.written == [None]
