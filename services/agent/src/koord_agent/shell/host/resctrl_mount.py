"""Mount resctrl, the file system in which caches are divided: by the agent, or by a step before it.

`python -m koord_agent mount-resctrl` is that step: in a pod, only a privileged container may mount for the machine, and
the agent is none.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from koordcore.service.settings import InvalidSettings

from koord_agent.settings import AgentSettings
from koord_agent.shell.host.probe import host_roots

WORD: Final = "mount-resctrl"
_OK: Final = 0
_USAGE: Final = 2


def is_mounted(resctrl: Path) -> bool:
    """Whether the caches of this machine can be divided there."""
    return (resctrl / "info/L3/cbm_mask").exists()


def mount_resctrl(target: Path) -> bool:
    """False if the directory does not exist or the mount fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    return target.is_dir() and libc.mount(b"resctrl", os.fsencode(target), b"resctrl", 0, None) == 0


def run_mount(words: Sequence[str]) -> int:
    """Mount resctrl if this machine has it, say so, and return the exit status. `words`: flags of the agent.

    The status is 0 also on a machine that cannot divide caches, because the agent runs there, too.
    """
    try:
        resctrl = host_roots(AgentSettings.load(list(words), os.environ)).resctrl
    except InvalidSettings as error:
        sys.stderr.writelines(f"koord-agent {WORD}: {problem}\n" for problem in error.problems)
        return _USAGE
    if is_mounted(resctrl):
        said = "resctrl is mounted"
    elif not resctrl.is_dir():
        said = "this machine has no resctrl"
    else:
        said = "resctrl is mounted now" if mount_resctrl(resctrl) else "resctrl cannot be mounted"
    sys.stdout.write(f"{said}: {resctrl}\n")
    return _OK
