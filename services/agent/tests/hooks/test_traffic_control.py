"""Network QoS by tc: the plan of a node, and its classes, sets and rules on the real kernel in a network namespace."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from koord_agent.domain.hooks.traffic_control import FIRST_OWN_MINOR, TcPod, TcPresent, ipset_lines, tc_lines, tc_plan
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.hooks.traffic_control import CHECK_MS, CommandFailed, CommandRefused, TrafficControl, run_command
from koordcore.protocol import keys

COMMANDS = ("ip", "tc", "ipset", "iptables")
SLO: dict[str, Any] = {
    "systemStrategy": {"totalNetworkBandwidth": "800M"},
    "resourceQOSStrategy": {
        "lsClass": {"networkQOS": {"enable": True, "egressRequest": 50, "egressLimit": 100}},
        "beClass": {"networkQOS": {"enable": True, "egressRequest": 30, "egressLimit": 40}},
    },
}
TERWAY = {"resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}}, "systemStrategy": {}}
LS_IP, BE_IP, OWN_IP, GATEWAY = "10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.1"
LIMIT = {keys.NETWORK_QOS: '{"egressLimit":"20M"}'}
PLACES = 100


def tc_pod(uid: str, label: str, *ips: str, limit: bool = False, host: bool = False) -> TcPod:
    return TcPod(
        uid=uid,
        labels={keys.QOS_CLASS: label},
        annotations=LIMIT if limit else {},
        directory=f"kubepods/pod{uid}",
        ips=ips,
        is_on_host_network=host,
    )


def test_pods_of_a_class_share_its_set_and_a_pod_with_a_limit_has_a_class() -> None:
    pods = [tc_pod("a", "LS", LS_IP), tc_pod("b", "BE", BE_IP, "fd00::1"), tc_pod("c", "LS", OWN_IP, limit=True)]
    plan = tc_plan(SLO, [*pods, tc_pod("d", "", "10.9.0.9")], {})

    assert plan.sets == {"system_class": (), "ls_class": (LS_IP,), "be_class": (BE_IP,)}
    ((minor, ips),) = plan.filters.items()
    assert (minor >= FIRST_OWN_MINOR, ips) == (True, (OWN_IP,))
    assert plan.classids == {"kubepods/poda": 65539, "kubepods/podb": 65540, "kubepods/podc": 0x10000 + minor}
    own = plan.classes[-1]
    assert (own.classid, own.rate, own.ceil, own.prio) == (f"1:{minor:x}", 2_500_000, 2_500_000, 2)


def test_pod_keeps_the_class_that_it_had_before_a_restart() -> None:
    plan = tc_plan(SLO, [tc_pod("c", "LS", OWN_IP, limit=True)], {"kubepods/podc": 0x10042})
    assert list(plan.filters) == [0x42]


def test_no_two_pods_share_a_class() -> None:
    pods = [tc_pod(f"p{number}", "BE", limit=True) for number in range(PLACES)]
    known = {pod.directory: 0x10020 for pod in pods}
    assert len(tc_plan(SLO, pods, known).filters) == PLACES


def test_htb_gets_no_rate_of_zero_and_nothing_changes_twice() -> None:
    nothing = {"systemStrategy": {"totalNetworkBandwidth": "0"}}
    plan = tc_plan(nothing, [tc_pod("c", "LS", OWN_IP, limit=True)], {})
    lines = tc_lines(plan, "eth0", TcPresent())
    assert all(" rate 0bps" not in line and " ceil 0bps" not in line for line in lines)

    minors = frozenset(int(each.classid.partition(":")[2], 16) for each in plan.classes)
    again = tc_lines(plan, "eth0", TcPresent(has_qdisc=True, minors=minors, filters=dict(plan.filters)))
    assert all(line.startswith("class replace") for line in again)


def test_set_is_filled_beside_the_old_one() -> None:
    lines = ipset_lines(tc_plan(SLO, [tc_pod("a", "LS", LS_IP)], {}))
    at = lines.index(f"add ls_class_new {LS_IP}")
    assert lines[at - 1 : at + 3] == [
        "flush ls_class_new",
        f"add ls_class_new {LS_IP}",
        "swap ls_class_new ls_class",
        "destroy ls_class_new",
    ]


def test_missing_command_is_told_and_nothing_else_fails() -> None:
    def absent(command: Sequence[str], text: str) -> str:
        raise CommandFailed(f"{command[0]}: not found")

    control = TrafficControl(lambda file: None, lambda file, value: None, absent)
    assert control.apply(look(SLO)) == ["network QoS by tc: ip: not found"]


def test_lines_that_tc_refused_are_a_problem_until_it_takes_them() -> None:
    refused = [True]

    def run(command: Sequence[str], text: str) -> str:
        if "-batch" in command and refused[0]:
            raise CommandFailed("tc: no such filter")
        return '[{"dev": "eth0"}]' if command[0] == "ip" else ""

    control = TrafficControl(lambda file: None, lambda file, value: None, run)
    told = ["network QoS by tc: tc: no such filter"]
    assert control.apply(look(SLO)) == told
    assert control.apply(look(SLO)) == told, "it is not tried again yet"
    refused[0] = False
    assert control.apply(look(SLO, now_ms=CHECK_MS)) == []


class Kernel:
    """The qdisc, rules and sets of a machine, and the commands that it refuses."""

    def __init__(self) -> None:
        self.sets = {"system_class", "ls_class", "be_class"}
        self.rules = set(self.sets)
        self.has_qdisc = True
        self.refuses: tuple[str, ...] = ()

    def run(self, command: Sequence[str], text: str) -> str:
        if self.refuses and all(word in command for word in self.refuses):
            self.refuses = ()
            raise CommandFailed(f"{command[0]}: the kernel is busy")
        match list(command):
            case ["ip", *_]:
                return '[{"dev": "eth0"}]'
            case ["iptables", *_, "--match-set", name, "src", "-j", "CLASSIFY", "--set-class", _]:
                if name not in self.rules:
                    raise CommandRefused("iptables: no such rule")
                if "-D" in command:
                    self.rules.remove(name)
            case ["ipset", verb, name]:
                if name not in self.sets or (verb == "destroy" and name in self.rules):
                    raise CommandRefused("ipset: no such set, or it is in use")
                if verb == "destroy":
                    self.sets.remove(name)
            case ["tc", "-j", "qdisc", *_]:
                return '[{"root": true, "kind": "htb", "handle": "1:"}]' if self.has_qdisc else "[]"
            case ["tc", "qdisc", "del", *_]:
                self.has_qdisc = False
            case _:
                pass
        return ""


@pytest.mark.parametrize(
    "refuses",
    [
        ("tc", "del"),
        *((verb, f"{name}_class") for verb in ("-D", "destroy") for name in ("system", "ls", "be")),
        ("-C", "system_class"),
        ("list", "be_class"),
    ],
)
def test_what_could_not_be_removed_is_removed_by_the_next_cycle(refuses: tuple[str, ...]) -> None:
    kernel = Kernel()
    kernel.refuses = refuses
    control = TrafficControl(lambda file: None, lambda file, value: None, kernel.run)
    (problem,) = control.apply(look(TERWAY))
    assert problem.endswith("the kernel is busy")
    assert control.apply(look(TERWAY)) == []
    assert (kernel.has_qdisc, kernel.rules, kernel.sets) == (False, set(), set())


def pod(uid: str, label: str, ip: str, *, limit: bool = False) -> AgentPod:
    return agent_pod_from_json(
        {
            "metadata": {
                "uid": uid,
                "namespace": "d",
                "name": uid,
                "labels": {keys.QOS_CLASS: label},
                "annotations": LIMIT if limit else {},
            },
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": ip}]},
        }
    )


def look(slo: dict[str, Any], *pods: AgentPod, now_ms: int = 0) -> NodeLook:
    return NodeLook(
        now_ms=now_ms,
        node="n",
        layout=CgroupLayout(Driver.CGROUPFS),
        cgroup_version=1,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=pods,
        slo=slo,
    )


class Namespace:
    """A network namespace of the test whose default route leads to an interface that answers nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ran: list[str] = []
        run_command(("ip", "netns", "add", self.name), "")
        self.run(("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "nobody"), "")
        for ip in (LS_IP, BE_IP, OWN_IP):
            self.run(("ip", "address", "add", f"{ip}/24", "dev", "eth0"), "")
        for interface in ("eth0", "nobody"):
            self.run(("ip", "link", "set", interface, "up"), "")
        self.run(("ip", "neighbour", "add", GATEWAY, "lladdr", "02:00:00:00:00:01", "dev", "eth0"), "")
        self.run(("ip", "route", "add", "default", "via", GATEWAY, "dev", "eth0"), "")

    def run(self, command: Sequence[str], text: str) -> str:
        """Run a command in the namespace."""
        self.ran.append(command[0])
        return run_command(("ip", "netns", "exec", self.name, *command), text)

    def sent(self) -> dict[str, int]:
        """Return class -> packets that it has sent."""
        shown = self.run(("tc", "-s", "class", "show", "dev", "eth0"), "")
        found = re.findall(r"class htb (\S+) .*?Sent \d+ bytes (\d+) pkt", shown, re.DOTALL)
        return {classid: int(packets) for classid, packets in found}

    def send_from(self, ip: str) -> None:
        """Send a datagram from an address."""
        program = f"import socket; s=socket.socket(type=2); s.bind(({ip!r},0)); s.sendto(b'x',('192.0.2.1',9))"
        self.run((sys.executable, "-c", program), "")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    missing = [command for command in COMMANDS if shutil.which(command) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and the commands {', '.join(missing) or 'of iproute2'}")
    name = f"koord-tc-{os.getpid()}"
    try:
        yield Namespace(name)
    finally:
        subprocess.run(("ip", "netns", "del", name), check=False)


@pytest.mark.root
def test_packets_of_pods_go_through_the_classes_of_the_kernel(namespace: Namespace) -> None:
    classids = {CgroupFile("kubepods/besteffort/podo", "net_cls.classid"): "0"}
    control = TrafficControl(classids.get, classids.__setitem__, namespace.run)
    pods = [pod("l", "LS", LS_IP), pod("b", "BE", BE_IP), pod("o", "BE", OWN_IP, limit=True)]

    refused = "".join(control.apply(look(SLO, *pods)))
    # A kernel may lack the classifier `cgroup`; it takes everything else.
    assert refused.count("Command failed") == refused.count("classifier not found")
    (own,) = [each for each in namespace.sent() if int(each.partition(":")[2], 16) >= FIRST_OWN_MINOR]
    for ip, classid in ((LS_IP, "1:3"), (BE_IP, "1:4"), (OWN_IP, own)):
        before = namespace.sent()[classid]
        namespace.send_from(ip)
        assert namespace.sent()[classid] == before + 1
    assert list(classids.values()) == [str(0x10000 + int(own.partition(":")[2], 16))]

    namespace.ran.clear()
    assert "".join(control.apply(look(SLO, *pods))) == refused
    assert namespace.ran == []
    assert control.apply(look(SLO, *pods, now_ms=CHECK_MS)) == []

    restarted = TrafficControl(classids.get, classids.__setitem__, namespace.run)
    assert restarted.apply(look(SLO, pods[2])) == []
    assert own in namespace.sent()
    assert LS_IP not in namespace.run(("ipset", "list"), "")
    assert restarted.apply(look(SLO)) == []
    assert own not in namespace.sent()


@pytest.mark.root
def test_another_policy_removes_everything_also_after_a_restart(namespace: Namespace) -> None:
    TrafficControl(lambda file: None, lambda file, value: None, namespace.run).apply(look(SLO, pod("l", "LS", LS_IP)))
    assert "htb" in namespace.run(("tc", "qdisc", "show", "dev", "eth0"), "")

    other = TrafficControl(lambda file: None, lambda file, value: None, namespace.run)
    assert other.apply(look(TERWAY)) == []
    assert "htb" not in namespace.run(("tc", "qdisc", "show", "dev", "eth0"), "")
    assert "ls_class" not in namespace.run(("ipset", "list"), "")
    assert "CLASSIFY" not in namespace.run(("iptables", "-t", "mangle", "-S"), "")
