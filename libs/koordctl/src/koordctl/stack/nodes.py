"""The nodes of the embedded stack, and their registration with the manager.

This machine can be one node with real measurements; all other nodes are simulated.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx
from koordcore.embedded.errors import EmbeddedError
from koordcore.protocol.manifests import read_documents
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.access.credentials import authorization
from koordctl.render.output import fail

Manifest = dict[str, Any]

REAL_NODE_TAINT: Final = "koordstream.io/measured-only"
"""Taint of this host. No kubelet starts containers here, so only pods that tolerate the taint are placed."""
CHUNK: Final = 500
RETRY_SECONDS: Final = 0.1
PATIENCE_SECONDS: Final = 30.0
TAKEN: Final = 200
LATER: Final = 503
DEFAULT_CPU: Final = "16"
DEFAULT_MEMORY: Final = "64Gi"


def host_node_name() -> str:
    """This machine's name as a valid node name."""
    name = "".join(char if char.isalnum() or char in "-." else "-" for char in socket.gethostname().lower())
    return name.strip("-.") or "this-host"


def host_manifest(name: str) -> Manifest:
    """This machine as a Node, with a taint that keeps away pods that do not tolerate it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    amounts = {"cpu": str(os.cpu_count() or 1), "memory": str(memory), "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "koordstream.io/host": "real"}},
        "spec": {"taints": [{"key": REAL_NODE_TAINT, "value": "true", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def simulated_nodes(text: str) -> list[Manifest]:
    """A number gives nodes `node-1`, `node-2` and so on, with 16 cores and 64 GiB each. Else the text is a file.

    If the file cannot be read or contains other kinds, the command ends with an error.
    """
    if text.isascii() and text.isdigit():
        return [_plain(f"node-{number}") for number in range(1, int(text) + 1)]
    try:
        documents = read_documents(Path(text).read_bytes())
    except OSError as error:
        fail(f"--simulated-nodes {text}: must be a number or a file of Node manifests: {error.strerror}", status=2)
    except InvalidInput as error:
        fail(f"--simulated-nodes {text}: {error.sentence()}", status=2)
    nodes = [cast("Manifest", document) for document in documents if isinstance(document, dict)]
    wrong = [str(node.get("kind")) for node in nodes if node.get("kind") != "Node"]
    if wrong or len(nodes) != len(documents):
        fail(f"--simulated-nodes {text}: only Node objects are expected, found {', '.join(wrong) or 'other values'}")
    return nodes


def _plain(name: str) -> Manifest:
    amounts = {"cpu": DEFAULT_CPU, "memory": DEFAULT_MEMORY, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "koordstream.io/host": "simulated"}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def write_nodes(file: Path, nodes: Sequence[Manifest]) -> Path:
    """Write the nodes to the file that the simulating agents read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(codec.encode({"apiVersion": "v1", "kind": "List", "items": list(nodes)}))
    return file


async def register(manager_url: str, manifests: Sequence[Manifest], registered: Path) -> None:
    """Apply the objects with which the embedded cluster starts.

    Objects that the previous start has applied in the same form are skipped, so that later changes by users survive.

    Args:
        registered: File with the manifests of the previous start; it is rewritten.

    Raises:
        EmbeddedError: The manager refused an object or does not answer.
        OSError: The file cannot be written.
    """
    async with httpx.AsyncClient(base_url=manager_url, timeout=60, trust_env=False, headers=authorization()) as client:
        due = await _due(client, manifests, _last_registered(registered))
        for begin in range(0, len(due), CHUNK):
            await submit(client, due[begin : begin + CHUNK])
    write_nodes(registered, manifests)


def _last_registered(file: Path) -> dict[tuple[str, str], Manifest]:
    """The manifests that the last start applied, by kind and name; empty if their file is missing or incomplete."""
    try:
        return {_key(manifest): manifest for manifest in codec.decode(file.read_bytes(), Manifest)["items"]}
    except (FileNotFoundError, codec.DecodeError, KeyError, TypeError):
        return {}


async def _due(
    client: httpx.AsyncClient, manifests: Sequence[Manifest], before: Mapping[tuple[str, str], Manifest]
) -> Sequence[Manifest]:
    """The manifests that changed since the last start, and those whose objects are gone.

    Raises:
        EmbeddedError: The manager refused to list its objects.
    """
    present: set[tuple[str, str]] = set()
    for kind in {kind for kind, _ in before}:
        answer = await client.get(f"/v1/objects/{kind}")
        if not answer.is_success:
            raise EmbeddedError(f"manager: {_first_problem(answer)}")
        present.update((kind, item["metadata"]["name"]) for item in answer.json()["items"])
    return [
        manifest for manifest in manifests if before.get(_key(manifest)) != manifest or _key(manifest) not in present
    ]


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


async def submit(client: httpx.AsyncClient, documents: Sequence[Manifest], path: str = "/v1/apply") -> int:
    """Apply documents, or with the path `/v1/delete` delete those that they name. Return the number of accepted ones.

    The manager judges each document by itself. The call is repeated while no manager leads, the manager does not
    answer, or the log is unavailable.

    Raises:
        EmbeddedError: The manager refused a document; the message is the first refusal. Or all repetitions failed.
    """
    body = codec.encode({"apiVersion": "v1", "kind": "List", "items": list(documents)})
    patience = PATIENCE_SECONDS
    while True:
        problem: str
        try:
            answer = await client.post(path, content=body)
        except httpx.HTTPError as error:
            problem = str(error) or type(error).__name__
        else:
            if answer.status_code == TAKEN:
                return len(answer.json()["results"])
            problem = _first_problem(answer)
            if answer.status_code != LATER:
                raise EmbeddedError(f"manager: {problem}")
        patience -= RETRY_SECONDS
        if patience <= 0:
            raise EmbeddedError(f"manager: {problem}")
        await asyncio.sleep(RETRY_SECONDS)


def _first_problem(answer: httpx.Response) -> str:
    """The first refusal in the manager's answer as one sentence."""
    try:
        body: dict[str, Any] = answer.json()
    except ValueError:
        return answer.text.strip() or f"HTTP {answer.status_code}"
    for result in body.get("results", ()):
        if result.get("errors"):
            error = result["errors"][0]
            name = f"{result.get('kind', 'document')}/{result.get('name', '?')}"
            words = (f"{name} {result['action']}:", error["field"], error["rule"], error["value"])
            return " ".join(word for word in words if word)
    return str(body.get("error", f"HTTP {answer.status_code}"))
