"""The identity of a process: its pid together with its start time.

A pid alone is recycled by the kernel, hence nothing here ever signals a pid whose start time differs
from the recorded one.
"""

import os
import signal
import subprocess
from pathlib import Path

import msgspec


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of one process, unique until the machine restarts.

    Attributes:
        started: Opaque: clock ticks since boot on Linux, the start time as `ps` prints it elsewhere.
    """

    pid: int
    started: str


def start_mark(pid: int) -> str | None:
    """Return the start time of a live process as an opaque text.

    None when there is no such process, or only its zombie.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # The second field is the program's name in parentheses and may hold spaces; fields count from after it.
        fields = stat.rpartition(")")[2].split()
        state, start_ticks = fields[0], fields[19]
        return None if state in {"Z", "X"} else start_ticks
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a live process; None if it is gone."""
    mark = start_mark(pid)
    return None if mark is None else ProcessIdentity(pid=pid, started=mark)


def is_alive(process: ProcessIdentity) -> bool:
    """Return whether exactly this process still runs; a recycled pid answers no."""
    return start_mark(process.pid) == process.started


def running_seconds(process: ProcessIdentity) -> float | None:
    """Return how long exactly this process has been running; None if it is gone, or where the kernel does not tell."""
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return None
    return uptime - int(process.started) / os.sysconf("SC_CLK_TCK") if is_alive(process) else None


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return False if it has ended."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def command_line(pid: int) -> str:
    """Return the command line of a live process, arguments separated by spaces.

    Empty when it is gone or hidden from us.
    """
    if Path("/proc/self/stat").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            return ""
    answer = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()
