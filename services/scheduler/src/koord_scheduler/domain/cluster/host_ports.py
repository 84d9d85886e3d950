"""The host ports of a pod.

Source: scheduler-core spec, 5.5.
"""

from typing import Final, NamedTuple

from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import running_containers

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared, never listened on


class HostPort(NamedTuple):
    """A port of its node on which a pod listens; address "0.0.0.0" stands for all addresses of the node."""

    protocol: str
    port: int
    address: str

    def conflicts(self, other: "HostPort") -> bool:
        if (self.protocol, self.port) != (other.protocol, other.port):
            return False
        return self.address == other.address or ANY_ADDRESS in (self.address, other.address)


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Of containers and sidecars, without duplicates, sorted. Other init containers take none, as in kube-scheduler."""
    ports = {
        HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_ADDRESS)
        for container in running_containers(pod)
        for port in container.ports
        if port.host_port > 0
    }
    return tuple(sorted(ports))
