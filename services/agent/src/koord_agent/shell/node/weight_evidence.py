"""Find out by which line the container runtime of a node with cgroup v2 converts shares to weights."""

from collections.abc import Iterator

from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import CPU

from koord_agent.domain.kernel.cgroup_files import SHARES, milli_to_shares, parse_number
from koord_agent.domain.kernel.cpu_weight import WeightLine, line_of
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.host import Host

LOOK_EVERY_MS = 60_000
MOST_CONTAINERS = 32
"""Number of containers that are enough evidence."""


class WeightEvidence:
    """Compares the weights of running containers with their requests once a minute, until they show the line.

    The runtime alone sets the shares of containers that do not belong to best-effort pods.
    """

    def __init__(self, host: Host) -> None:
        self.line = WeightLine.QUADRATIC  # The line of the runtime, as far as it is known
        self._host = host
        self._at_ms: int | None = None
        self._is_known = host.cgroup_version == 1 or host.roots is None

    def look(self, look: NodeLook) -> None:
        if self._is_known or (self._at_ms is not None and 0 <= look.now_ms - self._at_ms < LOOK_EVERY_MS):
            return
        self._at_ms = look.now_ms
        line = line_of(sample for sample, _ in zip(self._samples(look), range(MOST_CONTAINERS), strict=False))
        if line is not None:
            self.line = line
            self._host.use_weights(line)
            self._is_known = True

    def _samples(self, look: NodeLook) -> Iterator[tuple[int, int]]:
        for pod in look.pods:
            for container, directory in () if pod.qos_label == QosClass.BE else look.created_containers(pod):
                # without a request, the kubelet takes the limit
                request = container.requests.get(CPU, 0) or container.limits.get(CPU, 0)
                weight = parse_number(self._host.read(CgroupFile(directory, SHARES)) or "")
                if request and weight is not None and container.is_running:
                    yield milli_to_shares(request), weight
