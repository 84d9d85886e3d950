"""`/debug/pprof/` shows what all threads of the process do, if the configuration does not switch it off."""

import threading
from collections.abc import Iterator

import httpx
import pytest
from koordcore.service.access.needs import Role, need_of
from koordcore.values import codec
from support.descheduler.world import World
from support.until import DEADLINE_SECONDS


def configuration(*, profiling: bool) -> bytes:
    kind = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
    return codec.encode({**kind, "enableProfiling": profiling})


@pytest.fixture
def busy() -> Iterator[threading.Thread]:
    """A thread that computes, as a round does."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute, name="busy")
    thread.start()
    yield thread
    stop.set()
    thread.join()


@pytest.mark.usefixtures("busy")
async def test_profile_and_stacks_show_the_functions_of_all_threads() -> None:
    async with (
        World().service(configuration(profiling=True)) as (shell, _),
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        profile = (await client.get("/debug/pprof/profile?seconds=0.1")).text.splitlines()
        stacks = (await client.get("/debug/pprof/stacks")).text
        index = (await client.get("/debug/pprof/")).text
    of_busy = [line for line in profile if line.startswith("busy;threading.Thread._bootstrap;")]
    assert any("test_profiling.busy.<locals>.compute" in line for line in of_busy)
    assert any(line.startswith("MainThread;") for line in profile), "the event loop"
    assert all(int(line.rpartition(" ")[2]) > 0 for line in profile)
    assert "thread busy" in stacks
    assert "in compute" in stacks
    assert "koord_descheduler/cycle.py" in stacks, "tasks that wait"
    assert "/debug/pprof/profile" in index


@pytest.mark.parametrize("seconds", ["0", "51", "nan", "many"])
async def test_invalid_times_are_refused(seconds: str) -> None:
    async with (
        World().service(configuration(profiling=True)) as (shell, _),
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        answer = await client.get(f"/debug/pprof/profile?seconds={seconds}")
    assert (answer.status_code, "seconds: must be a number above 0" in answer.text) == (400, True)


async def test_a_configuration_without_profiling_has_no_such_page() -> None:
    async with (
        World().service(configuration(profiling=False)) as (shell, _),
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        assert (await client.get("/debug/pprof/stacks")).status_code == 404


def test_profiles_need_the_role_operate_and_are_audited() -> None:
    needs = [need_of("GET", f"/debug/pprof/{page}") for page in ("", "profile", "stacks")]
    assert {(need.role, need.is_audited) for need in needs} == {(Role.OPERATE, True)}
