"""The colocation profile controller: pods that wait get managed profiles, bounded and not over and over."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from koord_manager.domain.admission.context.profiles import read_profile
from koord_manager.domain.controller_names import COLOCATION_PROFILE, CONTROLLERS, NODE_SLO, QUOTA_PROFILE, enabled_of
from koord_manager.domain.controllers.colocation_profiles import ProfileUpdates
from koord_manager.shell.colocation_profiles import merge_patch, reconcile_profiles, run_profile_controller
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.gateway.api import ApiResponse, Unreachable
from koord_manager.shell.reconcile import LogFull
from koord_manager.shell.webhooks.quota_gate import ObjectsApi
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import NewEvent
from koordcore.ports.eventlog import AppendOutcome, Conflict, EventLog, Unavailable
from koordcore.values import codec
from structlog.testing import capture_logs
from support.manager.loops import Manager, running
from support.manager.webhook_world import webhook_world
from support.until import until

Json = dict[str, Any]
PROFILE: Json = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "late", "labels": {"config.koordinator.sh/controller-managed": "true"}},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "labels": {"seen": "true"},
        "schedulerName": "other",
        "annotations": {"a": "b"},
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "nginx"}]},
}


async def test_a_waiting_pod_gets_a_profile_that_came_later_without_its_scheduler(tmp_path: Path) -> None:
    flags = ("--feature-gates=ColocationProfileController=true", "--colocation-profile-reconcile-interval=20ms")
    async with webhook_world(tmp_path, *flags) as world:
        unmanaged = {**PROFILE, "metadata": {"name": "unmanaged"}, "spec": {**PROFILE["spec"], "labels": {"no": "no"}}}
        await world.apply(POD, unmanaged, PROFILE)

        async def pod() -> Json:
            return (await world.plain.get("/v1/objects/pods/web")).json()

        async def changed() -> Json | None:
            found = await pod()
            return found if "seen" in found["metadata"]["labels"] else None

        after = await until(changed)
        assert after["metadata"]["labels"] == {"app": "web", "seen": "true"}
        assert after["metadata"]["annotations"] == {"a": "b"}
        assert after["spec"]["schedulerName"] == "koord-scheduler"


async def test_a_profile_that_makes_no_pod_of_a_pod_holds_up_no_other(tmp_path: Path) -> None:
    flags = ("--feature-gates=ColocationProfileController=true", "--colocation-profile-reconcile-interval=20ms")
    spec: Json = {"selector": {"matchLabels": {"app": "web"}}, "patch": {"spec": {"containers": "none"}}}
    broken = {**PROFILE, "metadata": {**PROFILE["metadata"], "name": "broken"}, "spec": spec}
    async with webhook_world(tmp_path, *flags) as world:
        await world.apply(POD, broken, PROFILE)

        async def is_changed() -> bool:
            return "seen" in (await world.plain.get("/v1/objects/pods/web")).json()["metadata"]["labels"]

        await until(is_changed)
        assert not world.shell.service.stopping


class RefusingLog:
    """A log that gives all appends the same outcome while it has one. Everything else is that of the log."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.outcome: AppendOutcome | None = None
        self.appends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        self.appends += 1
        return self.outcome or await self._log.append(events, deadline=deadline)


PODS = 3


class Waiting:
    """A manager with pods that wait for a profile, and a log that can refuse."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.manager = Manager(self.log)
        self.refusing = RefusingLog(self.manager.context.log)
        self.context: ManagerContext = self.manager.context._replace(log=cast("EventLog", self.refusing))
        self.updates = ProfileUpdates()

    async def round(self, api: ObjectsApi | None = None) -> int:
        return await reconcile_profiles(self.context, self.updates, api, self.manager.clock.monotonic)

    def seen(self) -> int:
        pods = (self.manager.view.pod("default", f"web-{number}") for number in range(PODS))
        return sum("seen" in found[1].object.metadata.labels for found in pods if found is not None)


@asynccontextmanager
async def waiting_pods(profile: Json = PROFILE) -> AsyncGenerator[Waiting]:
    waiting = Waiting()
    pods = [{**POD, "metadata": {**POD["metadata"], "name": f"web-{number}"}} for number in range(PODS)]
    async with running(waiting.manager):
        results = await waiting.manager.apply("\n---\n".join(map(json.dumps, [*pods, profile])))
        assert [result.action for result in results] == ["created"] * (PODS + 1)
        yield waiting


async def test_a_full_log_ends_the_round_and_loses_no_pod() -> None:
    async with waiting_pods() as waiting:
        waiting.log.max_events = waiting.log.last_seq
        with pytest.raises(LogFull):
            await waiting.round()
        assert waiting.refusing.appends == 1
        waiting.log.max_events = None
        assert (await waiting.round(), waiting.seen()) == (PODS, PODS)


async def test_a_log_that_is_away_ends_the_round_and_loses_no_pod() -> None:
    async with waiting_pods() as waiting:
        waiting.refusing.outcome = Unavailable("no answer")
        with capture_logs() as lines:
            assert await waiting.round() == 0
        assert (waiting.refusing.appends, [line["reason"] for line in lines]) == (1, ["no answer"])
        waiting.refusing.outcome = None
        assert (await waiting.round(), waiting.seen()) == (PODS, PODS)


async def test_a_pod_that_somebody_else_changes_gets_the_profile_in_the_next_round() -> None:
    async with waiting_pods() as waiting:
        waiting.refusing.outcome = Conflict()
        assert (await waiting.round(), waiting.refusing.appends) == (0, PODS)
        waiting.refusing.outcome = None
        assert (await waiting.round(), waiting.seen()) == (PODS, PODS)


async def test_a_full_log_is_told_once_for_each_pause_and_pods_get_the_profile_after_it() -> None:
    async with waiting_pods() as waiting:
        waiting.log.max_events = waiting.log.last_seq
        clock, looks = waiting.manager.clock, count()

        def halted() -> None:
            next(looks)  # asked before each round

        context = waiting.context._replace(halted=halted)
        with capture_logs() as lines:
            controller = asyncio.ensure_future(
                run_profile_controller(
                    context, ProfileUpdates(), None, clock.monotonic, interval=0.01, by_default=False
                )
            )
            try:
                await until(lambda: lines)
                begun = next(looks)
                await until(lambda: next(looks) > begun + 20)
                assert (waiting.refusing.appends, [line["event"] for line in lines]) == (1, ["log_full"])
                waiting.log.max_events = None
                clock.jump(1)
                await until(lambda: waiting.seen() == PODS)
            finally:
                controller.cancel()
        assert [line["controller"] for line in lines if line["event"] == "log_full"] == ["colocationprofile"]


DELAYS = (0, 1, 2, 4)
"""Seconds before the first attempts for one pod."""


async def tried(waiting: Waiting, api: ObjectsApi | None = None) -> list[int]:
    """Return how often a profile was not applied in each of some rounds, which are as far apart as the back-off."""
    counts: list[int] = []
    for delay in DELAYS:
        waiting.manager.clock.jump(delay)
        for _ in range(2):  # the second one is within the back-off
            with capture_logs() as lines:
                await waiting.round(api)
            counts.append(sum(line["event"] == "profile_not_applied" for line in lines))
    return counts


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": "none"}},
        {"spec": {"priority": 7, "containers": [{"name": "main", "resources": {"requests": {"cpu": "7"}}}]}},
    ],
    ids=["not a pod", "immutable fields"],
)
async def test_a_pod_whose_patch_is_not_valid_is_tried_again_at_growing_intervals(patch: Json) -> None:
    spec = {"selector": PROFILE["spec"]["selector"], "patch": patch}
    async with waiting_pods({**PROFILE, "spec": spec}) as waiting:
        assert await tried(waiting) == [PODS, 0] * len(DELAYS)


class Api:
    """An API server that gives each request the same answer: a status, or none. It counts the requests."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.requests = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        del method, parameters, body, content_type
        self.requests += 1
        if not self.status:
            raise Unreachable(path)
        return ApiResponse(self.status, codec.encode({**POD, "message": "no"}))


@pytest.mark.parametrize("status", [403, 500])
async def test_a_pod_that_the_api_server_refuses_is_tried_again_at_growing_intervals(status: int) -> None:
    async with waiting_pods() as waiting:
        assert await tried(waiting, Api(status)) == [PODS, 0] * len(DELAYS)


async def test_an_api_server_that_does_not_answer_ends_the_round_and_no_pod_is_done() -> None:
    async with waiting_pods() as waiting:
        api = Api(0)
        with capture_logs() as lines:
            assert await waiting.round(api) == 0
        assert (api.requests, [line["event"] for line in lines]) == (1, ["profile_not_applied"])
        api.status = 200
        assert await waiting.round(api) == PODS - 1  # the other one waits for its back-off
        waiting.manager.clock.jump(1)
        assert await waiting.round(api) == 1


async def test_a_pod_that_is_gone_at_the_api_server_is_done() -> None:
    async with waiting_pods() as waiting:
        assert await tried(waiting, Api(404)) == [0, 0] * len(DELAYS)


def test_a_version_of_a_profile_is_put_on_a_pod_once_until_it_is_due_again() -> None:
    rounds = ProfileUpdates(force_update=300, qps=1, burst=2)
    profile, changed = read_profile(PROFILE), read_profile({**PROFILE, "spec": {"labels": {"x": "y"}}})

    assert rounds.is_due(profile, "u", 0)
    assert rounds.take(profile, "u", 0)
    assert not rounds.is_due(profile, "u", 299)
    assert rounds.is_due(changed, "u", 1)
    assert rounds.is_due(profile, "u", 300)


def test_the_bucket_leaves_the_rest_for_the_next_round() -> None:
    rounds = ProfileUpdates(qps=1, burst=2)
    profile = read_profile(PROFILE)

    assert [rounds.take(profile, str(number), 0.0) for number in range(3)] == [True, True, False]
    assert rounds.take(profile, "3", 1.0)
    assert not rounds.take(profile, "4", 1.0)


def test_the_controller_is_one_of_those_that_the_flag_names() -> None:
    assert COLOCATION_PROFILE not in enabled_of(CONTROLLERS, ("*", "-colocationprofile"))
    assert COLOCATION_PROFILE in enabled_of(CONTROLLERS, CONTROLLERS)
    assert enabled_of(CONTROLLERS, ("profile", "nodeslo")) == {QUOTA_PROFILE, NODE_SLO}


def test_a_merge_patch_holds_what_changed_and_nulls_for_what_is_gone() -> None:
    before = {"a": {"b": 1, "c": [1]}, "d": 2, "e": 3}
    after = {"a": {"b": 1, "c": [1, 2]}, "e": 3, "f": {"g": 1}}

    assert merge_patch(before, after) == {"a": {"c": [1, 2]}, "d": None, "f": {"g": 1}}
    assert json.dumps(merge_patch(before, before)) == "{}"
