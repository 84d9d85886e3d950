"""Ask dockerd for its cgroup driver and for the containers of Kubernetes that it has.

Source: runtime spec, 6 (point 7).
"""

from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec

from koord_criproxy.domain.docker import TYPE_LABEL
from koord_criproxy.domain.records import Store
from koord_criproxy.shell.docker.interceptor import recover_container, recover_sandbox
from koord_criproxy.shell.failover import RuntimeAway

REQUEST_SECONDS: Final = 10.0
_log: Final = logger("criproxy.docker")


async def recover(socket: Path, store: Store) -> str:
    """Fill the store with the pods and containers that dockerd has, running or not, and return its cgroup driver.

    The paths have no API version, so every dockerd answers in its own version.

    Args:
        socket: Socket of dockerd.
        store: Receives sandboxes and containers of Kubernetes.

    Raises:
        RuntimeAway: dockerd is not reached, or a list failed.
    """
    async with _client(socket) as client:
        info = await _get(client, "/info", dict[str, Any])
        driver = str(info.get("CgroupDriver", ""))
        inspected: dict[str, dict[str, Any]] = {}
        for id_ in await _ids(client, f"&filters={codec.encode({'label': [TYPE_LABEL]}).decode()}"):
            try:
                inspected[id_] = await _get(client, f"/containers/{id_}/json", dict[str, Any])
            except RuntimeAway as error:  # it may have been removed meanwhile
                _log.warning("container_not_read", container=id_, error=str(error))
    for id_, found in inspected.items():
        pod = recover_sandbox(found, driver)
        if pod is not None:
            store.pods[id_] = pod
    for id_, found in inspected.items():
        container = None if id_ in store.pods else recover_container(found, store, driver)
        if container is not None:
            store.containers[id_] = container
    return driver


async def listed_ids(socket: Path) -> frozenset[str]:
    """Return the ids of all containers that dockerd has, running or not.

    Raises:
        RuntimeAway: dockerd is not reached, or the list failed.
    """
    async with _client(socket) as client:
        return frozenset(await _ids(client))


def _client(socket: Path) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    return httpx.AsyncClient(transport=transport, base_url="http://docker", timeout=REQUEST_SECONDS)


async def _ids(client: httpx.AsyncClient, filters: str = "") -> list[str]:
    listed = await _get(client, f"/containers/json?all=true{filters}", list[dict[str, Any]])
    return [str(each["Id"]) for each in listed if "Id" in each]


async def _get(client: httpx.AsyncClient, path: str, kind: type[Any]) -> Any:
    try:
        response = await client.get(path)
        response.raise_for_status()
        return codec.decode(response.content, kind)
    except (httpx.HTTPError, codec.DecodeError) as error:
        raise RuntimeAway(f"{path}: {error or type(error).__name__}") from error
