"""Keep the classes of tc, the ipsets and net_cls.classid by which the bandwidth of QoS classes and pods is limited.

The commands `ip`, `tc`, `ipset` and `iptables` do the work. Each change is one script, and only differences are sent.

Source: runtime spec, 3.11.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks import traffic_control as traffic_plan
from koord_agent.domain.hooks.traffic_control import SYSTEM_CLASS, is_tc_enabled
from koord_agent.domain.kernel.cgroup_files import Unsupported
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.host import Vanished, WriteFailed

CHECK_MS: Final = 60_000
"""Time after which the interface is compared with the plan again, although nothing has changed."""
CLASSID: Final = "net_cls.classid"
_SECONDS: Final = 10.0
_IPTABLES: Final = ("iptables", "-w", "-t", "mangle")
_CHAIN: Final = "POSTROUTING"

Run: TypeAlias = Callable[[Sequence[str], str], str]
"""Runs a command with a standard input, and returns its standard output. Raises `CommandFailed`."""


class CommandFailed(Exception):
    """A command failed. The text says which and why."""


class CommandRefused(CommandFailed):
    """A command ended with an error, or is not installed. So what it was to find is not there."""


def run_command(command: Sequence[str], text: str) -> str:
    """Return its standard output.

    Raises:
        CommandRefused: It ended with an error, or is not installed.
        CommandFailed: It could not be started, or took too long.
    """
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False, errors="replace"
        )
    except FileNotFoundError as error:
        raise CommandRefused(f"{command[0]}: {error}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"{command[0]}: {error}") from error
    if done.returncode:
        raise CommandRefused(f"{' '.join(command)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout


class TrafficControl:
    """Limits bandwidths on the interface of the default route. Only the cycle of its node uses it."""

    def __init__(
        self,
        read: Callable[[CgroupFile], str | None],
        write: Callable[[CgroupFile, str], None],
        run: Run = run_command,
    ) -> None:
        self._read = read
        self._write = write
        self._run = run
        self._applied: traffic_plan.TcPlan | None = None
        self._interface = ""
        self._next_check = 0
        self._is_removed = False
        self._refused: list[str] = []

    def apply(self, look: NodeLook) -> list[str]:
        """Bring tc, ipsets and net_cls to the state that the NodeSLO asks for. Return errors, one sentence each.

        If the NodeSLO chooses another network policy, remove everything that this class has set.
        """
        try:
            if not is_tc_enabled(look.slo or {}):
                return self._remove()
            pods = [pod for pod in look.pods if pod.is_active and pod.uid not in look.frozen]
            wanted = [
                traffic_plan.TcPod(
                    uid=pod.uid,
                    labels=pod.labels,
                    annotations=pod.annotations,
                    directory=look.pod_directory(pod),
                    ips=pod.ips,
                    is_on_host_network=pod.is_on_host_network,
                )
                for pod in pods
            ]
            known = {pod.directory: classid for pod in wanted if (classid := self._classid(pod.directory)) is not None}
            plan = traffic_plan.tc_plan(look.slo or {}, wanted, known)
            problems = self._classify(plan, known)
            if plan != self._applied or look.now_ms >= self._next_check:
                self._refused = self._change(plan)
                self._applied, self._is_removed = plan, False
                self._next_check = look.now_ms + CHECK_MS
        except (InvalidInput, CommandFailed) as error:
            self._applied = None
            return [f"network QoS by tc: {error}"]
        return problems + self._refused

    def _change(self, plan: traffic_plan.TcPlan) -> list[str]:
        """Return an error if tc refused some of its lines.

        Raises:
            CommandFailed: Another command failed.
        """
        interface = self._default_interface()
        present = self._present(interface)
        if self._applied is not None and interface == self._interface:
            ours = self._applied.filters
            present = traffic_plan.TcPresent(
                has_qdisc=present.has_qdisc,
                minors=present.minors,
                filters={minor: ours.get(minor) for minor in present.filters},
            )
        self._interface = interface
        self._run(("ipset", "restore"), _script(traffic_plan.ipset_lines(plan)))
        for each in traffic_plan.NET_CLASSES:
            if not self._has_rule(traffic_plan.mark_rule(each)):
                self._run((*_IPTABLES, "-A", _CHAIN, *traffic_plan.mark_rule(each)), "")
        try:
            # -force: a kernel without cgroup filters refuses these lines, and takes all others.
            self._run(("tc", "-force", "-batch", "-"), _script(traffic_plan.tc_lines(plan, interface, present)))
        except CommandFailed as error:
            return [f"network QoS by tc: {error}"]
        return []

    def _classify(self, plan: traffic_plan.TcPlan, known: Mapping[str, int]) -> list[str]:
        """Write net_cls.classid of the pods whose value differs. Without cgroup v1, pods have no such file."""
        problems: list[str] = []
        for directory, classid in plan.classids.items():
            if directory in known and known[directory] != classid:
                try:
                    self._write(CgroupFile(directory, CLASSID), str(classid))
                except (Vanished, Unsupported):
                    continue
                except WriteFailed as error:
                    problems.append(f"network QoS by tc: {directory}/{CLASSID}: {error}")
        return problems

    def _classid(self, directory: str) -> int | None:
        text = (self._read(CgroupFile(directory, CLASSID)) or "").strip()
        return int(text) if text.isdecimal() else None

    def _remove(self) -> list[str]:
        """Remove classes, rules and sets, also those of an earlier process.

        Rule and set of the system's class go last. While one of them is there, the next call removes what is left.

        Raises:
            CommandFailed: A command failed.
        """
        if self._is_removed:
            return []
        if self._has_rule(traffic_plan.mark_rule(SYSTEM_CLASS)) or self._has_set(SYSTEM_CLASS.name):
            interface = self._interface or self._default_interface()
            if self._present(interface).has_qdisc:
                self._run(("tc", "qdisc", "del", "dev", interface, "root"), "")
            for each in reversed(traffic_plan.NET_CLASSES):
                if self._has_rule(traffic_plan.mark_rule(each)):
                    self._run((*_IPTABLES, "-D", _CHAIN, *traffic_plan.mark_rule(each)), "")
                if self._has_set(each.name):
                    self._run(("ipset", "destroy", each.name), "")
        self._applied, self._is_removed, self._refused = None, True, []
        return []

    def _has_rule(self, rule: Sequence[str]) -> bool:
        return self._succeeds(*_IPTABLES, "-C", _CHAIN, *rule)

    def _has_set(self, name: str) -> bool:
        return self._succeeds("ipset", "list", name)

    def _succeeds(self, *command: str) -> bool:
        try:
            self._run(command, "")
        except CommandRefused:
            return False
        return True

    def _default_interface(self) -> str:
        routes: list[dict[str, Any]] = json.loads(self._run(("ip", "-j", "-4", "route", "show", "default"), "") or "[]")
        if not routes:
            raise CommandFailed("the machine has no default route")
        return str(routes[0]["dev"])

    def _present(self, interface: str) -> traffic_plan.TcPresent:
        """Addresses of filters are not read and stay None."""
        shown = self._run(("tc", "-j", "qdisc", "show", "dev", interface), "")
        qdiscs: list[dict[str, Any]] = json.loads(shown or "[]")
        if not any(each.get("root") and (each.get("kind"), each.get("handle")) == ("htb", "1:") for each in qdiscs):
            return traffic_plan.TcPresent()
        classes = self._run(("tc", "class", "show", "dev", interface), "")
        filters = self._run(("tc", "filter", "show", "dev", interface, "parent", "1:"), "")
        prefs = {int(found) for found in _after(filters, "pref")}
        return traffic_plan.TcPresent(
            has_qdisc=True,
            minors=frozenset(int(found.partition(":")[2], 16) for found in _after(classes, "htb")),
            filters=dict.fromkeys(pref for pref in sorted(prefs) if pref >= traffic_plan.FIRST_OWN_MINOR),
        )


def _after(text: str, word: str) -> list[str]:
    """Return each word of the text that directly follows an occurrence of `word`."""
    words = text.split()
    return [following for each, following in pairwise(words) if each == word]


def _script(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
