"""A container runtime and a hook server in one process, for the measurements of the CRI proxy.

    python runtime_server.py FOLDER

Both answer at once, so that only the proxy's own time is measured. Every sandbox and container has an id of its own.
"""

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from support.criproxy import GrpcServer

_ids = itertools.count(1)


async def runtime(method: str, _body: bytes, _context: Any) -> bytes | None:
    """Answer a call of CRI."""
    messages, name = cri_messages(), method.rpartition("/")[2]
    match name:
        case "Version":
            answer = messages["VersionResponse"](runtime_name="bench", runtime_version="1")
        case "RunPodSandbox":
            answer = messages["RunPodSandboxResponse"](pod_sandbox_id=f"sandbox-{next(_ids)}")
        case "CreateContainer":
            answer = messages["CreateContainerResponse"](container_id=f"container-{next(_ids)}")
        case _:
            return b""
    body: bytes = answer.SerializeToString()
    return body


async def hook(method: str, body: bytes, _context: Any) -> bytes | None:
    """Answer a hook with other CPU shares, and with the environment of the request."""
    rpc = method.rpartition("/")[2]
    request, response = messages_of_call(rpc)
    answer = response()
    if "Container" in rpc:
        asked = request.FromString(body)
        answer.container_resources.CopyFrom(asked.container_resources)
        answer.container_resources.cpu_shares = 512
        answer.container_envs.update(asked.container_envs)
    found: bytes = answer.SerializeToString()
    return found


async def serve(folder: Path) -> None:
    """Serve on `runtime.sock` and `hooks.sock` until the process is ended."""
    servers = [GrpcServer(folder / "runtime.sock", runtime), GrpcServer(folder / "hooks.sock", hook)]
    for server in servers:
        await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
