"""What the agent can be told, besides what every service can be told."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from koordcore.service.settings import Flag, Seconds, ServiceSettings
from pydantic import Field

from koord_agent.gates import GATES


class AgentSettings(ServiceSettings):
    """Settings of `koord-agent`."""

    service: ClassVar[str] = "agent"
    known_gates = GATES
    about: ClassVar[str] = (
        "Measures one node, reports, and enforces QoS on it; with --simulated-nodes-file one process is the agent of "
        "many simulated nodes."
    )

    host_mode: Literal["auto", "linux", "simulated"] = Field(
        "auto", description="linux: this machine; simulated: the nodes of the file; auto: by whether a file is given."
    )
    node_name: Annotated[str, Flag("node")] = Field(
        "", description="Name of this machine's node; without it $NODE_NAME, else the host's name."
    )
    simulated_nodes_file: Path | None = Field(
        None,
        description="Nodes to simulate: a Kubernetes List of Node objects, or one JSON object per line with "
        "node, cpu_milli and memory_bytes.",
    )
    shard: str = Field(
        "1/1",
        pattern=r"^[1-9][0-9]*/[1-9][0-9]*$",
        description="k/n: this process is the k-th of n that share the file.",
    )
    tick_seconds: Seconds | None = Field(
        None, gt=0, description="Pause between rounds, in the host's time; default 1 s (linux), 2 s (simulated)."
    )
    state_dir: Path | None = Field(
        None,
        description="Folder for facts that are not in the log yet and the last desired state; without it they are "
        "lost with the process.",
    )
    outbox_facts: int = Field(100_000, ge=1, description="Facts that may wait for the log; beyond it new ones wait.")
    desired_max_age: Seconds = Field(
        24 * 3600.0, gt=0, description="A kept desired state older than this is not used, in the run's time."
    )
    cgroup_root: Path = Field(Path("/sys/fs/cgroup"), description="Where the cgroup file systems are mounted.")
    proc_root: Path = Field(Path("/proc"), description="Where procfs is mounted.")
    audit_log_dir: Path = Field(
        Path("/var/log/koordlet"), description="Folder of the audit log; written with the gate AuditEvents."
    )
    audit_verbose: int = Field(3, ge=0, description="Audit events above this verbosity are left out; 0: none are.")
    audit_max_disk_space_mb: int = Field(16, ge=2, description="Disk that the audit log may take.")
    audit_max_concurrent_readers: int = Field(4, ge=1, description="Queries of the audit log that may go on at a time.")
    audit_max_events_limit: int = Field(2048, ge=1, description="Largest page of a query of the audit log.")
