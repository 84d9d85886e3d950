"""On a real kernel: a process that needs more memory than its cgroup may use is killed, and the agent reads it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.reporting.oom_kills import OOM_CONTROL, oom_kill_count
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import cgroup_version

pytestmark = pytest.mark.root

CGROUP = Path("/sys/fs/cgroup")
TREE = f"kubepods-oom-{os.getpid()}"
LIMIT = 32 << 20
GREEDY = "input(); kept = bytearray(b'x' * (256 << 20))"


def test_kernel_counts_the_kill_of_a_process_above_its_limit() -> None:
    version = cgroup_version(CGROUP)
    root = CGROUP if version == 2 else (CGROUP / "memory").resolve()
    if os.geteuid() != 0 or not os.access(root / "cgroup.procs", os.W_OK):
        pytest.skip("needs root and a writable cgroup file system")
    if version == 2 and "memory" not in (root / "cgroup.subtree_control").read_text().split():
        pytest.skip("the memory controller is not delegated")
    directory = root / TREE
    directory.mkdir()
    try:
        swap = "memory.swap.max" if version == 2 else "memory.memsw.limit_in_bytes"
        (directory / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(str(LIMIT))
        if (directory / swap).exists():
            (directory / swap).write_text("0" if version == 2 else str(LIMIT))
        host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=CgroupLayout(Driver.CGROUPFS, kubepods=TREE))
        file = CgroupFile(TREE, OOM_CONTROL)
        assert oom_kill_count(host.read(file)) == 0
        with subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE) as process:
            (directory / "cgroup.procs").write_text(str(process.pid))
            process.communicate(b"go\n")
            assert process.returncode == -9
        assert oom_kill_count(host.read(file)) == 1
    finally:
        directory.rmdir()
