"""Settings of the agent, in addition to those of every service."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from koordcore.service.configuration.settings import Flag, Seconds, ServiceSettings, TextList
from pydantic import Field, PrivateAttr

from koord_agent.config.flags import accepted, container_paths
from koord_agent.config.gates import GATES


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
    cycle_seconds: Seconds | None = Field(
        None,
        gt=0,
        description="Seconds between cycles, in the time of the host. Default: 1 s (linux), 2 s (simulated).",
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
    cgroup_root: Annotated[Path, Flag("cgroup-root-dir")] = Field(
        Path("/sys/fs/cgroup"), description="Where the cgroup file systems are mounted."
    )
    proc_root: Annotated[Path, Flag("proc-root-dir")] = Field(Path("/proc"), description="Where procfs is mounted.")
    sys_root: Annotated[Path, Flag("sys-root-dir")] = Field(Path("/sys"), description="Where sysfs is mounted.")
    sys_fs_root: Annotated[Path | None, Flag("sys-fs-root-dir")] = Field(
        None, description="Where the file systems below /sys/fs are; without it below --sys-root."
    )
    run_root: Annotated[Path, Flag("run-root-dir")] = Field(Path("/run"), description="The machine's /run.")
    var_run_root: Annotated[Path, Flag("var-run-root-dir")] = Field(
        Path("/var/run"), description="The machine's /var/run."
    )
    in_container: bool = Field(
        False, description="Run commands of the machine in the mount namespace of its first process."
    )
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
    only_evict_by_api: bool = Field(
        False, description="Evicted pods are asked to go; their containers are not stopped here."
    )
    default_runtime_type: Literal["containerd", "docker", "pouch", "cri-o"] = Field(
        "containerd", description="Runtime of containers that are known by their cgroup only."
    )
    containerd_endpoint: Path | None = Field(None, description="Socket of containerd if it is not in /run.")
    docker_endpoint: Path | None = Field(None, description="Socket of Docker if it is not in /run.")
    pouch_endpoint: Path | None = Field(None, description="Socket of pouch if it is not in /run.")
    disable_query_kubelet_config: bool = Field(False, description="Do not ask for the kubelet's configuration.")
    node_topology_sync_interval: Seconds = Field(3.0, gt=0, description="Between looks at who may use which CPUs.")
    collect_node_cpu_info_interval: Seconds = Field(60.0, gt=0, description="Between looks at which CPUs are online.")
    collect_node_storage_info_interval: Seconds = Field(
        1.0, gt=0, description="Between looks at which disks there are."
    )
    enable_node_metric_report: bool = Field(True, description="Report the node's usage.")
    collect_res_used_interval: Seconds = Field(
        1.0,
        ge=0,
        description="Between rounds of a real node, unless --cycle-seconds says otherwise; below 1 s nothing is "
        "measured and nothing protected.",
    )
    collect_sys_metric_outdated_interval: Seconds = Field(
        10.0, gt=0, description="What the system uses is not told from samples that are older."
    )
    cpu_suppress_interval_seconds: int = Field(1, description="Between rounds of CPU suppression; 0: switched off.")
    reconcile_interval_seconds: int = Field(
        1, description="Between rounds of CPU burst, memory QoS, resctrl, block IO and system settings; 0: all off."
    )
    cpu_evict_interval_seconds: int = Field(1, description="Between rounds of evictions by CPU; 0: switched off.")
    cpu_evict_cool_time_seconds: int = Field(20, ge=0, description="After an eviction by CPU nobody is evicted by it.")
    memory_evict_interval_seconds: int = Field(1, description="Between rounds of evictions by memory; 0: switched off.")
    memory_evict_cool_time_seconds: int = Field(4, ge=0, description="The same of evictions by memory.")
    qos_extension_plugins: TextList = Field((), description="Strategies of installed packages: A=true,B=false.")
    resource_force_update_seconds: int = Field(
        60, ge=1, description="A knob is looked at again after this time although nothing new is wanted of it."
    )
    psi_collector_interval: Seconds = Field(10.0, gt=0, description="Between looks at PSI, in the run's time.")
    cpi_collector_interval: Seconds = Field(60.0, gt=0, description="Between measurements of CPI, in the run's time.")
    collect_cpi_timewindow: Seconds = Field(10.0, gt=0, description="How long CPI is measured each time.")
    coldpage_collector_interval: Seconds = Field(5.0, gt=0, description="Between looks at cold pages.")
    resctrl_collector_interval: Seconds = Field(10.0, gt=0, description="Between looks at resctrl counters.")
    enable_resctrl_collector: bool = Field(False, description="Collect resctrl counters; needs its gate, too.")
    tsdb_path: Path | None = Field(None, description="Folder of kept samples; without it below --state-dir.")
    tsdb_retention_duration: Seconds = Field(
        12 * 3600.0, gt=0, description="How long samples of the node are kept, in the run's time."
    )
    tsdb_max_bytes: int = Field(100 * 1024 * 1024, ge=1 << 20, description="Disk that kept samples may take.")
    prediction_checkpoint_filepath: Path | None = Field(
        None, description="Folder of the models of usage; without it below --state-dir."
    )
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
    _notes: tuple[str, ...] = PrivateAttr(())

    @property
    def notes(self) -> tuple[str, ...]:
        """Changes of the command line, one sentence each."""
        return self._notes

    @classmethod
    def load(cls, words: Sequence[str], environ: Mapping[str, str]) -> Self:
        """Return the settings of a command line, also one of the reference's agent. See `koord_agent.config.flags`."""
        taken = accepted(words, {name for spec in cls.flag_specs() for name in spec.names} | {"h", "help"})
        settings = super().load(taken.words, {**container_paths(environ, cls.env_prefix()), **environ})
        settings._notes = taken.notes
        return settings
