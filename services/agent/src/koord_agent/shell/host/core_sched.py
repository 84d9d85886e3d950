"""Cookies of core scheduling by prctl(2); implements `shell.hooking.core_cookies.CookieKernel`.

prctl copies a cookie only from or to the calling thread. So each copy is made by a thread of its own, which ends with
the cookie; the threads of the agent keep none.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from koord_agent.shell.host.kernel_files import put, read_kernel_file

PR_SCHED_CORE: Final = 62
GET, CREATE, SHARE_TO, SHARE_FROM = range(4)
THREAD: Final = 0
THREAD_GROUP: Final = 1


class CoreSchedKernel:
    """The kernel of this machine.

    Args:
        proc: Folder of procfs.
    """

    def __init__(self, proc: Path) -> None:
        self._kernel = proc / "sys" / "kernel"
        self._libc = ctypes.CDLL(None, use_errno=True)

    @property
    def is_supported(self) -> bool:
        """Whether core scheduling can be used: the kernel has the switch `sched_core`, or gives this process's cookie.

        It gives the cookie only if the CPU has threads that share a core. With the switch, this is not checked.
        """
        return (self._kernel / "sched_core").exists() or self.cookie(os.getpid()) is not None

    def enable(self) -> bool:
        """Switch core scheduling on, and group identity off, where the kernel has switches. Return False on failure.

        See `CookieKernel.enable`.
        """
        for name, value in (("sched_group_identity_enabled", "0"), ("sched_core", "1")):
            current = read_kernel_file(str(self._kernel / name))
            if current is None or current.strip() == value:
                continue
            try:
                put(self._kernel / name, value)
            except OSError:
                return False
        return True

    def cookie(self, process: int) -> int | None:
        """Return the cookie of a process, 0 for none; None if it cannot be read. See `CookieKernel.cookie`."""
        found = ctypes.c_uint64(0)
        done = self._call(GET, process, THREAD, ctypes.addressof(found))
        return found.value if done else None

    def create(self, process: int) -> None:
        """Give a process a new cookie. No-op if the process is gone. See `CookieKernel.create`."""
        self._call(CREATE, process, THREAD_GROUP)

    def share(self, source: int, targets: Sequence[int]) -> None:
        """Give the cookie of a process to other processes. Processes that are gone are skipped.

        See `CookieKernel.share`.
        """

        def copy() -> None:
            if self._call(SHARE_FROM, source, THREAD):
                for target in targets:
                    self._call(SHARE_TO, target, THREAD_GROUP)

        _in_thread(copy)

    def clear(self, processes: Sequence[int]) -> None:
        """Take the cookies of processes away. Processes that are gone are skipped.

        prctl can only copy cookies: a new thread without a cookie copies its state. See `CookieKernel.clear`.
        """

        def copy() -> None:
            for process in processes:
                self._call(SHARE_TO, process, THREAD_GROUP)

        _in_thread(copy)

    def _call(self, command: int, process: int, scope: int, address: int = 0) -> bool:
        """Call prctl. Return False if the kernel refuses, for example because the process is gone."""
        words = (ctypes.c_ulong(word) for word in (command, process, scope, address))
        return self._libc.prctl(PR_SCHED_CORE, *words) == 0


def _in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name="core-cookie")
    thread.start()
    thread.join()
