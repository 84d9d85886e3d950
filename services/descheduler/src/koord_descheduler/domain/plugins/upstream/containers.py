"""States of a pod's containers, as several upstream plugins compare them."""

from collections.abc import Iterator

from koordcore.protocol.objects import ContainerStatus

from koord_descheduler.domain.view.pods import PodView


def statuses(pod: PodView, *, init: bool = False, ephemeral: bool = False) -> Iterator[ContainerStatus]:
    """Yield the statuses of a pod's containers.

    Args:
        pod: The pod.
        init: Whether init containers are included.
        ephemeral: Whether ephemeral containers are included.
    """
    status = pod.object.status
    yield from status.container_statuses
    if init:
        yield from status.init_container_statuses
    if ephemeral:
        yield from status.ephemeral_container_statuses


def waiting_reasons(containers: Iterator[ContainerStatus]) -> Iterator[str]:
    """Yield the reasons of the containers that wait."""
    for container in containers:
        if container.state is not None and container.state.waiting is not None:
            yield container.state.waiting.reason


def reasons(containers: Iterator[ContainerStatus]) -> Iterator[str]:
    """Yield the reasons of the containers that wait or have ended."""
    for container in containers:
        if container.state is not None:
            if container.state.waiting is not None:
                yield container.state.waiting.reason
            if container.state.terminated is not None:
                yield container.state.terminated.reason


def exit_codes(containers: Iterator[ContainerStatus]) -> Iterator[int]:
    """Yield the exit codes of the containers that have ended and were not started again."""
    for container in containers:
        if container.state is not None and container.state.terminated is not None:
            yield container.state.terminated.exit_code
