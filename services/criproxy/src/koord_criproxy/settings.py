"""Settings of the CRI proxy, under the reference's names.

Source: runtime spec, 5.1.
"""

import socket
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from koordcore.service.settings import Flag, Seconds, ServiceSettings
from pydantic import Field


class CriProxySettings(ServiceSettings):
    """Settings of the CRI proxy: its command-line flags and environment variables. It works without the log."""

    service: ClassVar[str] = "criproxy"
    about: ClassVar[str] = (
        "Stands between kubelet and container runtime. Before and after the calls that start, change and stop pods and "
        "containers it asks the hook servers that are registered in --hook-server-dir. All other calls pass unchanged."
    )

    koord_runtimeproxy_endpoint: Path = Field(
        Path("/var/run/koord-runtimeproxy/runtimeproxy.sock"), description="Socket to serve."
    )
    remote_runtime_service_endpoint: Path = Field(
        Path("/var/run/containerd/containerd.sock"), description="Socket of the container runtime, or of dockerd."
    )
    remote_image_service_endpoint: Path | None = Field(
        None, description="Socket for images if it is another one. Deprecated."
    )
    backend_runtime_mode: Literal["Containerd", "Docker"] = Field(
        "Containerd",
        description="Kind of runtime: Containerd stands for every runtime that speaks CRI v1, Docker for dockerd.",
    )
    runtime_hook_server_key: str = Field(
        "runtimeproxy.koordinator.sh/skip-hookserver", description="Label of pods that are not sent to hook servers."
    )
    runtime_hook_server_val: str = Field("true", description="Value of that label.")
    hook_server_dir: Annotated[Path, Flag("hookserver-dir")] = Field(
        Path("/etc/runtime/hookserver.d"), description="Folder in which hook servers register."
    )
    node_name: Annotated[str, Flag("node")] = Field(
        default_factory=lambda: socket.gethostname().lower(), min_length=1, description="Name of this machine's node."
    )
    publish_facts: bool = Field(True, description="Whether failed and changed hook servers become facts of the log.")
    facts_socket: Path | None = Field(
        None,
        description="Socket of the node's agent, which appends the facts to the log. Default: connect by --nats-urls.",
    )
    state_dir: Path | None = Field(
        Path("/var/lib/koord-criproxy"), description="Folder of facts that are not in the log yet; empty: in memory."
    )
    outbox_facts: int = Field(1_000, ge=1, description="Most facts that wait; above it the oldest are dropped.")
    runtime_start_timeout: Seconds = Field(
        60.0, gt=0, description="Time to wait for the runtime at the start; after it the process ends."
    )
