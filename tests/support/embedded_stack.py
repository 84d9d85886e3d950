"""Parts of tests that run the embedded stack with processes that die: its folder, its addresses, and objects for it."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import ProcessSpec
from koordctl.stack.processes import StackOptions, wipe

_TAKEN: Final = 200
_LATER: Final = 503


class Sender:
    """Sends documents to the manager whatever dies meanwhile; a request is repeated until it is answered.

    Args:
        manager: Base URL of the manager.
    """

    def __init__(self, manager: str) -> None:
        self._client = httpx.AsyncClient(base_url=manager, trust_env=False, timeout=10)

    async def send(self, path: str, documents: Sequence[dict[str, Any]]) -> None:
        """Repeat a request until every document was taken. Applying or deleting twice is harmless."""
        content = json.dumps({"kind": "List", "items": [*documents]})
        while True:
            with contextlib.suppress(httpx.HTTPError):
                response = await self._client.post(path, content=content)
                if response.status_code == _TAKEN:
                    return
                if response.status_code != _LATER:
                    actions = {result["action"] for result in response.json().get("results", [])}
                    assert actions <= {"created", "unchanged", "deleted", "not-found", "failed"}, response.text
                    if "failed" not in actions:
                        return
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


@contextlib.contextmanager
def var_folder() -> Generator[Path]:
    """Provide a folder for a stack; everything in it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="koord-chaos-") as folder:
        Path(folder).chmod(0o755)
        var = Path(folder) / "var"
        try:
            yield var
        finally:
            wipe(StackOptions(var=var))


def url_of(processes: Sequence[ProcessSpec], name: str) -> str:
    """Return the base URL of a process."""
    return next(spec.urls["http"] for spec in processes if spec.name == name)


def write_nodes(var: Path, manifests: Sequence[dict[str, Any]]) -> Path:
    """Write the manifests of simulated nodes into the folder of a stack, which is created, and return the file."""
    var.mkdir(parents=True)
    nodes = var / "nodes.json"
    nodes.write_text(json.dumps({"kind": "List", "items": [*manifests]}))
    return nodes


def with_standbys(processes: Sequence[ProcessSpec], names: Sequence[str]) -> list[ProcessSpec]:
    """Add a second instance of each named service: `manager-2` beside `manager`. One of both leads."""
    return [*processes, *map(_standby_of, (spec for spec in processes if spec.name in names), free_ports(len(names)))]


def _standby_of(spec: ProcessSpec, port: int) -> ProcessSpec:
    name, url = f"{spec.name}-2", f"http://{LOOPBACK}:{port}"
    other = {spec.name: name, str(spec.ports["http"]): str(port)}
    log = spec.log_file
    return replace(
        spec,
        name=name,
        argv=tuple(other.get(word, word) for word in spec.argv),
        ready=f"{url}/readyz",
        log_file=None if log is None else log.with_name(f"{name}.log"),
        ports={"http": port},
        urls={"http": url},
    )
