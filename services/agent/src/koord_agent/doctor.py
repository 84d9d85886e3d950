"""`python -m koord_agent doctor`: protections and features of this machine as JSON, without starting an agent.

`koord node doctor` shows them to people. Nothing is written to the machine.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from koordcore.service.flags import HelpRequested, render_help
from koordcore.service.settings import InvalidSettings

from koord_agent.domain.kernel.protections import verdicts
from koord_agent.gates import GATES
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import host_roots

_OK: Final = 0
_FAILED: Final = 1
_USAGE: Final = 2


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    kernel: str
    cgroup_version: int  # 1 or 2
    cgroup_driver: str  # systemd or cgroupfs
    # Protections: name, state, feature gate, setting of the NodeSLO, and the reason if the state is not `available`.
    protections: list[dict[str, str]]
    # Findings: feature, whether it can be used, the file that decides it, and the reason if not.
    findings: list[dict[str, str | bool]]


def examine(settings: AgentSettings) -> Examination:
    """Raises OSError: The machine has no cgroup file system."""
    host = LinuxHost(
        monotonic_ns=time.monotonic_ns,
        roots=host_roots(settings),
    )
    system = os.uname()
    features = host.features()
    gates_on = [gate.name for gate in GATES if settings.feature_gates.enabled(gate.name)]
    return Examination(
        node=settings.node_name or system.nodename,
        kernel=system.release,
        cgroup_version=host.cgroup_version,
        cgroup_driver=host.layout.driver.value,
        protections=[
            {
                "protection": one.protection.name,
                "state": one.state.value,
                "gate": one.protection.gate,
                "setting": one.protection.setting,
                "why": one.why,
            }
            for one in verdicts(features, gates_on, lambda path: os.access(path, os.W_OK))
        ],
        findings=[
            {"feature": str(f.feature), "usable": f.usable, "file": f.file, "why": f.why} for f in features.findings
        ],
    )


def run_doctor(words: Sequence[str]) -> int:
    """Print the features of this machine as JSON, and return the exit status. Nothing is written to the machine."""
    try:
        settings = AgentSettings.load(list(words), os.environ)
    except HelpRequested:
        sys.stdout.write(
            render_help("koord-agent doctor", "Shows the features of this machine.", AgentSettings.flag_specs())
        )
        return _OK
    except InvalidSettings as error:
        sys.stderr.writelines(f"koord-agent doctor: {problem}\n" for problem in error.problems)
        return _USAGE
    try:
        found = examine(settings)
    except OSError as error:
        sys.stderr.write(f"koord-agent doctor: {error}\n")
        return _FAILED
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return _OK
