"""A stack of processes: started in order, restarted, stopped in reverse, found by others."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError, NotRestartableError, StartError
from koordcore.embedded.identity import ProcessIdentity, command_words, identify, is_alive, send_signal, start_mark
from koordcore.embedded.process import NEVER_RESTART, ProcessSpec, RestartPolicy
from koordcore.embedded.stack import (
    Phase,
    ProcessState,
    ProcessStatus,
    Stack,
    read_stack,
    start_in_background,
    stop_stack,
    write_stack,
)
from koordcore.embedded.supervisor import Supervisor
from support.small_disk import small_disk
from support.until import DEADLINE_SECONDS, until

QUICK = RestartPolicy(first_delay_seconds=0.02, max_delay_seconds=0.1)
SLEEP = ("/bin/sleep", "3600")
PIECE = 65_536

DAEMON = """
import asyncio, sys
from pathlib import Path
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor

state, *argv = sys.argv[1:]
spec = ProcessSpec(name="sleeper", argv=tuple(argv), log_file=Path(state).with_name("sleeper.log"))
asyncio.run(Supervisor([spec], state_file=Path(state), log=print).run_until_stopped())
"""

DEGRADED = """
import os, sys, time
from pathlib import Path
from koordcore.embedded.identity import identify
from koordcore.embedded.stack import Phase, ProcessState, ProcessStatus, Stack, write_stack

state, name, words = sys.argv[1:]
down = ProcessStatus(name=name, state=ProcessState.BACKING_OFF, last_exit=1, last_words=words)
write_stack(Path(state), Stack(phase=Phase.DEGRADED, supervisor=identify(os.getpid()), processes=(down,)))
time.sleep(600)
"""


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "var" / "run" / "stack.json"


@pytest.fixture
def stray() -> Iterator[subprocess.Popen[bytes]]:
    """A live process that is nobody's child here by the supervisor's count."""
    with subprocess.Popen(SLEEP, start_new_session=True) as process:
        yield process
        process.kill()


def daemon(state_file: Path, *argv: str) -> tuple[str, ...]:
    return (sys.executable, "-c", DAEMON, str(state_file), *argv)


def noting(name: str, order: list[str]) -> Callable[[], Awaitable[None]]:
    async def note() -> None:
        order.append(name)

    return note


def dead_supervisor() -> ProcessIdentity:
    with subprocess.Popen(["/bin/true"]) as process:
        pass
    return ProcessIdentity(pid=process.pid, started="1")


@pytest.mark.parametrize("declared", [1, -1], ids=["needed last", "needed first"])
async def test_processes_start_after_what_they_need_and_stop_before_it(state_file: Path, declared: int) -> None:
    order: list[str] = []
    said: list[str] = []
    after = {"agent": ("manager",), "manager": ("nats",), "nats": (), "postgres": ()}
    specs = [
        ProcessSpec(name=name, argv=SLEEP, after=needed, prepare=noting(name, order)) for name, needed in after.items()
    ]
    async with Supervisor(specs[::declared], state_file=state_file, log=said.append) as supervisor:
        assert supervisor.status().phase is Phase.READY
        assert order.index("nats") < order.index("manager") < order.index("agent")
        said.clear()
    stopped = [sentence.split()[0] for sentence in said]
    assert stopped.index("agent") < stopped.index("manager") < stopped.index("nats")
    assert sorted(stopped) == sorted(after)


async def test_processes_that_need_nothing_start_at_the_same_time(state_file: Path) -> None:
    both_started = asyncio.Barrier(2)

    async def meet() -> None:
        await asyncio.wait_for(both_started.wait(), DEADLINE_SECONDS)

    specs = [ProcessSpec(name=name, argv=SLEEP, prepare=meet) for name in ("nats", "postgres")]
    async with Supervisor(specs, state_file=state_file) as supervisor:
        assert supervisor.status().phase is Phase.READY


async def test_state_file_tells_another_process_everything(state_file: Path, tmp_path: Path) -> None:
    spec = ProcessSpec(
        name="nats",
        argv=SLEEP,
        log_file=tmp_path / "log" / "nats.log",
        ports={"client": 4222},
        urls={"client": "nats://"},
    )
    async with Supervisor([spec], state_file=state_file) as supervisor:
        stack = read_stack(state_file)
        assert stack == supervisor.status()
        assert stack is not None
        assert stack.is_live
        assert stack.supervisor.pid == os.getpid()
        nats = stack.find("nats")
        assert nats is not None
        assert nats.process is not None
        assert is_alive(nats.process)
        assert (nats.ports, nats.urls, nats.log_file) == ({"client": 4222}, {"client": "nats://"}, str(spec.log_file))
        mode = (await asyncio.to_thread(state_file.stat)).st_mode
        assert mode & 0o777 == 0o600
    assert read_stack(state_file) is None
    assert not is_alive(nats.process)


async def test_killed_process_comes_back(state_file: Path) -> None:
    spec = ProcessSpec(name="agent", argv=SLEEP, restart=QUICK)
    async with Supervisor([spec], state_file=state_file) as supervisor:
        before = supervisor.status().find("agent")
        await supervisor.kill("agent")
        await supervisor.wait_ready("agent", seconds=DEADLINE_SECONDS, after_restarts=1)
        after = supervisor.status().find("agent")
        assert before is not None
        assert after is not None
        assert after.process != before.process
        assert (after.restarts, after.last_exit, after.state) == (1, -signal.SIGKILL, ProcessState.READY)
        assert supervisor.status().phase is Phase.READY


async def test_a_process_that_dies_on_a_full_disk_is_restarted_and_its_state_is_true(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2) as disk:
        state_file, written = disk.path / "run" / "stack.json", disk.path / "written"
        needs_space = f"head -c {PIECE} /dev/zero >> {written} && exec sleep 3600"
        spec = ProcessSpec(name="agent", argv=("/bin/sh", "-c", needs_space), restart=QUICK)
        log = disk.path / "up.log"

        def tell(sentence: str) -> None:
            with log.open("a") as out:
                out.write(sentence + "\n")

        async with Supervisor([spec], state_file=state_file, log=tell, look_seconds=0.05) as supervisor:
            await until(lambda: written.exists() and written.stat().st_size == PIECE)
            disk.fill()
            await supervisor.kill("agent")
            await until(lambda: supervisor.status().processes[0].restarts > 1)
            recorded = read_stack(state_file)
            assert recorded is not None
            agent = recorded.as_seen().processes[0]
            assert agent.process is not None
            assert agent.state is not ProcessState.READY or is_alive(agent.process)

            before = written.stat().st_size
            disk.empty()
            await until(lambda: written.stat().st_size >= before + PIECE)
            await until(lambda: read_stack(state_file) == supervisor.status())
            await until(lambda: supervisor.status().phase is Phase.READY)


async def test_a_dead_process_is_never_seen_as_ready(stray: subprocess.Popen[bytes]) -> None:
    me, alive = identify(os.getpid()), identify(stray.pid)
    assert me is not None
    processes = tuple(
        ProcessStatus(name=name, state=ProcessState.READY, process=process)
        for name, process in (("alive", alive), ("dead", dead_supervisor()))
    )
    seen = Stack(phase=Phase.READY, supervisor=me, processes=processes).as_seen()
    assert [each.state for each in seen.processes] == [ProcessState.READY, ProcessState.BACKING_OFF]
    assert seen.phase is Phase.DEGRADED


async def test_a_process_with_a_reason_is_restarted_and_one_that_needs_a_person_is_given_up(state_file: Path) -> None:
    reasons, needs_person = ["", "it hangs"], list[str]()

    async def reason() -> str:
        return reasons.pop(0) if reasons else ""

    async def ready() -> bool:
        if needs_person:
            raise NotRestartableError(needs_person[0])
        return True

    spec = ProcessSpec(name="log", argv=SLEEP, restart=QUICK, restart_reason=reason, ready=ready)
    async with Supervisor([spec], state_file=state_file, look_seconds=0.01) as supervisor:
        await supervisor.wait_ready("log", seconds=DEADLINE_SECONDS, after_restarts=1)
        needs_person.append("the log is gone")
        await supervisor.kill("log")
        await until(lambda: supervisor.status().processes[0].state is ProcessState.GIVEN_UP)
        recorded = read_stack(state_file)
        assert recorded is not None
        assert (recorded.processes[0].last_words, recorded.processes[0].restarts) == ("the log is gone", 2)


async def test_a_restarted_process_gets_its_stop_signal_and_is_ready_again(state_file: Path) -> None:
    spec = ProcessSpec(name="agent", argv=SLEEP, restart=QUICK, stop_seconds=DEADLINE_SECONDS)
    async with Supervisor([spec], state_file=state_file) as supervisor:
        before = supervisor.status().find("agent")
        await supervisor.restart("agent", seconds=DEADLINE_SECONDS)
        after = supervisor.status().find("agent")
        assert before is not None
        assert after is not None
        assert after.process != before.process
        assert (after.restarts, after.last_exit, after.state) == (1, -signal.SIGTERM, ProcessState.READY)


async def test_process_that_keeps_ending_is_given_up_and_the_stack_is_degraded(
    state_file: Path, tmp_path: Path
) -> None:
    breaks = tmp_path / "breaks"
    waits = f"while [ ! -e {breaks} ]; do sleep 0.01; done; exit 7"
    policy = RestartPolicy(first_delay_seconds=0.01, max_delay_seconds=0.02, steady_after_seconds=3600, max_restarts=3)
    spec = ProcessSpec(name="broken", argv=("/bin/sh", "-c", waits), restart=policy)
    async with Supervisor([spec], state_file=state_file) as supervisor:
        assert supervisor.status().phase is Phase.READY
        breaks.touch()
        await until(lambda: supervisor.status().processes[0].state is ProcessState.GIVEN_UP)
        status = supervisor.status()
        assert status.phase is Phase.DEGRADED
        assert (status.processes[0].restarts, status.processes[0].last_exit) == (3, 7)
        with pytest.raises(EmbeddedError, match="broken is given-up"):
            await supervisor.wait_ready("broken", seconds=0.01)


async def test_process_without_restarts_stays_down(state_file: Path) -> None:
    spec = ProcessSpec(name="once", argv=SLEEP, restart=NEVER_RESTART)
    async with Supervisor([spec], state_file=state_file) as supervisor:
        await supervisor.kill("once")
        await until(lambda: supervisor.status().processes[0].state is ProcessState.GIVEN_UP)
        assert supervisor.status().processes[0].restarts == 0


async def test_failed_start_says_why_and_leaves_nothing_running(state_file: Path, tmp_path: Path) -> None:
    good = ProcessSpec(name="good", argv=SLEEP)
    bad = ProcessSpec(
        name="bad",
        argv=("/bin/sh", "-c", "echo no such setting; exit 3"),
        ready="http://127.0.0.1:1/",
        ready_seconds=DEADLINE_SECONDS,
        log_file=tmp_path / "bad.log",
        after=("good",),
    )
    supervisor = Supervisor([good, bad], state_file=state_file)
    with pytest.raises(StartError, match=r"bad: ended with exit code 3 .*\n.*no such setting"):
        await supervisor.start()
    stack = read_stack(state_file)
    assert stack is not None
    assert stack.phase is Phase.FAILED
    assert "no such setting" in stack.error
    for status in stack.processes:
        assert status.process is None or not is_alive(status.process)


async def test_process_that_never_gets_ready_is_an_error_after_its_deadline(state_file: Path) -> None:
    spec = ProcessSpec(name="slow", argv=SLEEP, ready="http://127.0.0.1:1/", ready_seconds=0.1)
    with pytest.raises(StartError, match=r"slow: not ready within 0\.1 s"):
        await Supervisor([spec], state_file=state_file).start()


async def test_program_that_does_not_exist_is_named(state_file: Path) -> None:
    with pytest.raises(StartError, match="ghost: cannot run /no/such/program"):
        await Supervisor([ProcessSpec(name="ghost", argv=("/no/such/program",))], state_file=state_file).start()


async def test_process_that_ignores_the_stop_is_killed(state_file: Path, tmp_path: Path) -> None:
    deaf = "trap '' TERM; echo deaf; while true; do sleep 0.05; done"
    log_file = tmp_path / "deaf.log"
    spec = ProcessSpec(name="deaf", argv=("/bin/sh", "-c", deaf), log_file=log_file, stop_seconds=0.2)
    async with Supervisor([spec], state_file=state_file) as supervisor:
        await until(lambda: "deaf" in log_file.read_text())
        process = supervisor.status().processes[0].process
    assert process is not None
    assert not is_alive(process)


async def test_second_supervisor_of_a_stack_is_refused_and_disturbs_nothing(state_file: Path) -> None:
    async with Supervisor([ProcessSpec(name="agent", argv=SLEEP)], state_file=state_file) as first:
        second = Supervisor([ProcessSpec(name="agent", argv=SLEEP)], state_file=state_file)
        with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}"):
            await second.start()
        await second.stop()
        assert read_stack(state_file) == first.status()


async def test_orphans_of_a_dead_supervisor_are_stopped_by_the_next(
    state_file: Path, stray: subprocess.Popen[bytes]
) -> None:
    orphan = ProcessStatus(
        name="agent", state=ProcessState.READY, process=identify(stray.pid), stop_seconds=DEADLINE_SECONDS
    )
    write_stack(state_file, Stack(phase=Phase.READY, supervisor=dead_supervisor(), processes=(orphan,)))
    async with Supervisor([ProcessSpec(name="agent", argv=SLEEP)], state_file=state_file):
        assert stray.poll() == -signal.SIGTERM


async def test_down_stops_orphans_but_never_a_recycled_pid(state_file: Path, stray: subprocess.Popen[bytes]) -> None:
    recycled = ProcessStatus(
        name="agent", state=ProcessState.READY, process=ProcessIdentity(pid=stray.pid, started="before")
    )
    stack = Stack(phase=Phase.READY, supervisor=dead_supervisor(), processes=(recycled,))
    write_stack(state_file, stack)
    assert stack.orphans == ()
    assert await stop_stack(state_file) is False
    assert stray.poll() is None
    assert recycled.process is not None
    assert not send_signal(recycled.process, signal.SIGKILL)
    assert stray.poll() is None


def test_process_identity_ends_with_the_process() -> None:
    with subprocess.Popen(SLEEP) as process:
        me = identify(process.pid)
        assert me is not None
        assert is_alive(me)
        process.kill()
    assert start_mark(process.pid) is None
    assert not is_alive(me)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="`ps` separates arguments by spaces")
def test_words_of_a_command_line_keep_their_spaces() -> None:
    words = ["/bin/sh", "-c", "echo; read _", "a folder"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before, the kernel may not have the words yet
        assert command_words(process.pid) == words
        process.kill()
    assert command_words(process.pid) == []


async def started(argv: tuple[str, ...], state_file: Path, log_file: Path) -> Stack:
    """Start a stack in the background, and wait as long as any test waits."""
    return await start_in_background(argv, state_file=state_file, log_file=log_file, seconds=DEADLINE_SECONDS)


async def test_stack_in_the_background_outlives_its_starter_and_is_stopped_by_another(
    state_file: Path, tmp_path: Path
) -> None:
    log_file = tmp_path / "supervisor.log"
    stack = await started(daemon(state_file, *SLEEP), state_file, log_file)
    sleeper = stack.processes[0].process
    assert stack.is_live
    assert sleeper is not None
    assert os.getsid(stack.supervisor.pid) == stack.supervisor.pid != os.getsid(0)
    with pytest.raises(AlreadyRunningError, match=f"process {stack.supervisor.pid}"):
        await started(daemon(state_file, *SLEEP), state_file, log_file)

    assert await stop_stack(state_file, seconds=DEADLINE_SECONDS) is True

    assert not stack.is_live
    assert not is_alive(sleeper)
    assert read_stack(state_file) is None
    assert "sleeper is stopped" in log_file.read_text()
    assert await stop_stack(state_file) is False


async def test_background_start_that_fails_says_why(state_file: Path, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot run /no/such/program"):
        await started(daemon(state_file, "/no/such/program"), state_file, tmp_path / "log")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel stops children of a killed parent on Linux only")
async def test_killed_supervisor_takes_its_processes_with_it(state_file: Path, tmp_path: Path) -> None:
    stack = await started(daemon(state_file, *SLEEP), state_file, tmp_path / "log")
    sleeper = stack.processes[0].process
    assert sleeper is not None
    send_signal(stack.supervisor, signal.SIGKILL)
    await until(lambda: not is_alive(sleeper))
    again = await started(daemon(state_file, *SLEEP), state_file, tmp_path / "log")
    assert again.supervisor != stack.supervisor
    assert await stop_stack(state_file, seconds=DEADLINE_SECONDS) is True


async def test_process_that_ends_before_it_is_ready_gives_its_reason_in_the_first_line(
    state_file: Path, tmp_path: Path
) -> None:
    lines = (
        """echo '{"level":"error","event":"compose_failed","error":"name: must be known"}'; echo '{"level":"info"}'"""
    )
    spec = ProcessSpec(
        name="scheduler",
        argv=("/bin/sh", "-c", f"{lines}; exit 1"),
        ready="http://127.0.0.1:1/",
        ready_seconds=DEADLINE_SECONDS,
        log_file=tmp_path / "scheduler.log",
    )
    with pytest.raises(StartError) as raised:
        await Supervisor([spec], state_file=state_file).start()
    said = "scheduler: ended with exit code 1 before it was ready: name: must be known (log: "
    assert str(raised.value).startswith(said)


async def test_process_that_backs_off_shows_how_it_ended(state_file: Path, tmp_path: Path) -> None:
    end = tmp_path / "end"
    spec = ProcessSpec(
        name="scheduler",
        argv=("/bin/sh", "-c", f"until [ -e {end} ]; do sleep 0.02; done; echo 'ValueError: no slots'; exit 1"),
        log_file=tmp_path / "scheduler.log",
        restart=RestartPolicy(first_delay_seconds=60, max_delay_seconds=60),
    )
    async with Supervisor([spec], state_file=state_file) as supervisor:
        end.touch()
        await until(lambda: supervisor.status().processes[0].state is ProcessState.BACKING_OFF)
        status = supervisor.status().processes[0]
    assert (status.last_exit, status.last_words) == (1, "ValueError: no slots")


async def test_start_in_the_background_ends_when_a_process_has_ended_after_all_were_ready(
    state_file: Path, tmp_path: Path
) -> None:
    down = ProcessStatus(name="scheduler", state=ProcessState.BACKING_OFF, last_exit=1, last_words="no slots")
    argv = (sys.executable, "-c", DEGRADED, str(state_file), down.name, down.last_words)
    stack = await started(argv, state_file, tmp_path / "log")
    send_signal(stack.supervisor, signal.SIGKILL)
    assert (stack.phase, stack.processes) == (Phase.DEGRADED, (down,))
