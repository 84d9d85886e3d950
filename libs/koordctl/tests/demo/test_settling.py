"""The demo waits for the first attempt of every pod before it judges."""

import asyncio

import pytest
from koordctl.demo import submitting
from koordctl.demo.submitting import Watching, settle
from koordctl.demo.tail import Tail


async def test_the_demo_judges_when_every_pod_had_its_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(submitting, "QUIET_SECONDS", 0.0)
    tail = Tail()

    async def attempt() -> None:
        for number in range(5):
            await asyncio.sleep(0.05)
            (tail.placed if number % 2 else tail.explained).add(f"p{number}")

    attempts = asyncio.create_task(attempt())
    await settle(5, tail, Watching(step=lambda _: None, progress=lambda _: None))
    assert tail.unanswered(5) == 0
    await attempts


async def test_the_demo_gives_up_on_pods_that_nobody_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(submitting, "FIRST_ATTEMPT_SECONDS", 0.1)
    tail = Tail()
    await settle(5, tail, Watching(step=lambda _: None, progress=lambda _: None))
    assert tail.unanswered(5) == 5
