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
    sys_root: Path = Field(Path("/sys"), description="Where sysfs is mounted.")
    kubelet_address: str = Field("", description="Where this node's kubelet is; without it pods are known by the log.")
    kubelet_port: int = Field(10250, ge=1, le=65535, description="Authenticated port of the kubelet.")
    kubelet_insecure_tls: bool = Field(False, description="Use the kubelet's read-only port, without a token.")
    kubelet_read_only_port: int = Field(10255, ge=1, le=65535, description="Read-only port of the kubelet.")
    kubelet_token_file: Path = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        description="Token for the kubelet, read anew for each request.",
    )
    kubelet_sync_interval: Seconds = Field(10.0, gt=0, description="Between lists of pods, in the host's time.")
    kubelet_sync_timeout: Seconds = Field(3.0, gt=0, description="How long the kubelet may take to answer.")
    var_lib_kubelet_dir: Path = Field(Path("/var/lib/kubelet"), description="The kubelet's folder.")
    disable_query_kubelet_config: bool = Field(False, description="Do not ask for the kubelet's configuration.")
    psi_collector_interval: Seconds = Field(10.0, gt=0, description="Between looks at PSI, in the run's time.")
    cpi_collector_interval: Seconds = Field(60.0, gt=0, description="Between measurements of CPI, in the run's time.")
    collect_cpi_timewindow: Seconds = Field(10.0, gt=0, description="How long CPI is measured each time.")
    coldpage_collector_interval: Seconds = Field(5.0, gt=0, description="Between looks at cold pages.")
    resctrl_collector_interval: Seconds = Field(10.0, gt=0, description="Between looks at resctrl counters.")
    enable_resctrl_collector: bool = Field(False, description="Collect resctrl counters; needs its gate, too.")
    tsdb_retention_duration: Seconds = Field(
        12 * 3600.0, gt=0, description="How long samples of the node are kept, in the run's time."
    )
    tsdb_max_bytes: int = Field(100 * 1024 * 1024, ge=1 << 20, description="Disk that kept samples may take.")
    prediction_cold_start_duration: Seconds = Field(
        24 * 3600.0, ge=0, description="A younger pod counts with its whole request."
    )
    prediction_safety_margin_percent: int = Field(10, ge=0, le=100, description="Added to every predicted peak.")
    prediction_cpu_histogram_decay_halflife: Seconds = Field(
        12 * 3600.0, gt=0, description="A cpu sample loses half of its weight in this time."
    )
    prediction_memory_histogram_decay_halflife: Seconds = Field(
        24 * 3600.0, gt=0, description="A memory sample loses half of its weight in this time."
    )
    prediction_training_interval: Seconds = Field(60.0, gt=0, description="Between training rounds.")
    prediction_model_expiration_duration: Seconds = Field(
        1_800.0, gt=0, description="A model that learns nothing for this long is dropped."
    )
    prediction_model_checkpoint_interval: Seconds = Field(600.0, gt=0, description="Between checkpoints of a model.")
    prediction_model_checkpoint_max_per_step: int = Field(12, ge=1, description="Checkpoints written at a time.")
    audit_log_dir: Path = Field(
        Path("/var/log/koordlet"), description="Folder of the audit log; written with the gate AuditEvents."
    )
    audit_verbose: int = Field(3, ge=0, description="Audit events above this verbosity are left out; 0: none are.")
    audit_max_disk_space_mb: int = Field(16, ge=2, description="Disk that the audit log may take.")
    audit_max_concurrent_readers: int = Field(4, ge=1, description="Queries of the audit log that may go on at a time.")
    audit_max_events_limit: int = Field(2048, ge=1, description="Largest page of a query of the audit log.")
