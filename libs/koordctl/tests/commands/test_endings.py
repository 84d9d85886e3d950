"""How `koord up` and `koord status` tell of processes that ended by themselves."""

from koordcore.embedded.identity import ProcessIdentity
from koordcore.embedded.stack import Phase, ProcessState, ProcessStatus, Stack
from koordctl.stack.running import endings


def stack(*processes: ProcessStatus) -> Stack:
    return Stack(phase=Phase.DEGRADED, supervisor=ProcessIdentity(pid=1, started="1"), processes=processes)


def test_a_process_that_backs_off_is_told_with_its_last_words() -> None:
    down = ProcessStatus(
        name="scheduler",
        state=ProcessState.BACKING_OFF,
        last_exit=1,
        last_words="name: must be known",
        log_file="var/scheduler.log",
    )
    assert endings(stack(down)) == [
        "scheduler ended with exit code 1 and will be restarted: name: must be known (log: var/scheduler.log)"
    ]


def test_a_process_that_is_given_up_is_not_started_again() -> None:
    up = ProcessStatus(name="scheduler", state=ProcessState.GIVEN_UP, last_exit=-9)
    assert endings(stack(up)) == ["scheduler ended with exit code -9 and is not restarted"]


def test_a_process_that_runs_again_is_not_told_of() -> None:
    again = ProcessStatus(name="scheduler", state=ProcessState.READY, last_exit=1, last_words="x", restarts=1)
    assert endings(stack(again, ProcessStatus(name="manager", state=ProcessState.STARTING))) == []
