"""Settings that only the agent has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from koordcore.service.settings import Flag, Seconds, ServiceSettings, TextList
from pydantic import Field, PrivateAttr

from koord_agent.flags import IDLE_FLAGS, accepted, container_paths
from koord_agent.gates import GATES


class AgentSettings(ServiceSettings):
    """Settings of `koord-agent`: its command-line flags and environment variables, with their defaults."""

    service: ClassVar[str] = "agent"
    known_gates = GATES
    idle_flags = IDLE_FLAGS
    about: ClassVar[str] = (
        "Measures one node, reports its usage, and enforces QoS on it. With --simulated-nodes-file one process is the "
        "agent of many simulated nodes."
    )

    host_mode: Literal["auto", "linux", "simulated"] = Field(
        "auto", description="linux: this machine; simulated: the nodes of the file; auto: simulated if a file is given."
    )
    node_name: Annotated[str, Flag("node")] = Field(
        "", description="Name of this machine's node. Default: $NODE_NAME, else the name of the host."
    )
    simulated_nodes_file: Path | None = Field(
        None,
        description="Nodes to simulate: a Kubernetes List of Node objects, or one JSON object per line with "
        "node, cpu_milli and memory_bytes.",
    )
    shard: str = Field(
        "1/1",
        pattern=r"^[1-9][0-9]*/[1-9][0-9]*$",
        description="k/n: this process is the k-th of n processes that share the file.",
    )
    cycle_seconds: Seconds | None = Field(
        None,
        gt=0,
        description="Seconds between cycles, in the time of the host. Default: 1 s (linux), 2 s (simulated).",
    )
    state_dir: Path | None = Field(
        None,
        description="Folder of the local store: facts that are not in the log yet, and the last desired state. "
        "Without it they are lost with the process.",
    )
    outbox_facts: int = Field(
        100_000, ge=1, description="Largest number of facts in the outbox; further facts are offered again later."
    )
    desired_max_age: Seconds = Field(
        24 * 3600.0, gt=0, description="Age above which a stored desired state is not used, in the service's time."
    )
    cgroup_root: Annotated[Path, Flag("cgroup-root-dir")] = Field(
        Path("/sys/fs/cgroup"), description="Mount point of the cgroup file systems."
    )
    proc_root: Annotated[Path, Flag("proc-root-dir")] = Field(Path("/proc"), description="Mount point of procfs.")
    sys_root: Annotated[Path, Flag("sys-root-dir")] = Field(Path("/sys"), description="Mount point of sysfs.")
    sys_fs_root: Annotated[Path | None, Flag("sys-fs-root-dir")] = Field(
        None, description="Folder of the file systems of /sys/fs. Default: below --sys-root."
    )
    run_root: Annotated[Path, Flag("run-root-dir")] = Field(Path("/run"), description="The machine's /run.")
    var_run_root: Annotated[Path, Flag("var-run-root-dir")] = Field(
        Path("/var/run"), description="The machine's /var/run."
    )
    kubelet_address: str = Field(
        "", description="Address of this node's kubelet. Without it pods are known from the log."
    )
    kubelet_port: int = Field(10250, ge=1, le=65535, description="Authenticated port of the kubelet.")
    kubelet_insecure_tls: bool = Field(False, description="Use the read-only port of the kubelet, without a token.")
    kubelet_read_only_port: int = Field(10255, ge=1, le=65535, description="Read-only port of the kubelet.")
    kubelet_token_file: Path = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        description="File with the token for the kubelet, read for each request.",
    )
    kubelet_sync_interval: Seconds = Field(
        10.0, gt=0, description="Seconds between lists of pods, in the time of the host."
    )
    kubelet_sync_timeout: Seconds = Field(3.0, gt=0, description="Longest wait for an answer of the kubelet.")
    var_lib_kubelet_dir: Path = Field(Path("/var/lib/kubelet"), description="Folder of the kubelet.")
    kubelet_cgroup_root: str = Field(
        "",
        description="cgroupRoot of the kubelet. Default: found in its command line, its configuration or the cgroups.",
    )
    pod_resources_proxy_path: Path = Field(
        Path("/var/run/koordlet/pod-resources"),
        description="Folder of the socket of the pod-resources proxy, which the gate PodResourcesProxy enables.",
    )
    only_evict_by_api: bool = Field(
        False, description="Only request evictions; do not stop containers on this machine."
    )
    default_runtime_type: Literal["containerd", "docker", "pouch", "cri-o"] = Field(
        "containerd", description="Runtime of containers that are known only by their cgroup."
    )
    containerd_endpoint: Path | None = Field(None, description="Socket of containerd if it is not in /run.")
    docker_endpoint: Path | None = Field(None, description="Socket of Docker if it is not in /run.")
    pouch_endpoint: Path | None = Field(None, description="Socket of pouch if it is not in /run.")
    xpu_device_infos_dir: Path = Field(
        Path("/var/run/koordlet/xpu-device-infos"), description="Folder of the description files of devices."
    )
    xpu_enforce_collect_from_device_infos: bool = Field(
        False, description="Do not ask NVML for GPUs, even without description files."
    )
    disable_query_kubelet_config: bool = Field(False, description="Do not query the configuration of the kubelet.")
    node_topology_sync_interval: Seconds = Field(3.0, gt=0, description="Interval of reading who may use which CPUs.")
    collect_node_cpu_info_interval: Seconds = Field(
        60.0, gt=0, description="Interval of reading which CPUs are online."
    )
    collect_node_storage_info_interval: Seconds = Field(1.0, gt=0, description="Interval of reading which disks exist.")
    enable_node_metric_report: bool = Field(True, description="Report the usage of the node.")
    collect_res_used_interval: Seconds = Field(
        1.0,
        ge=0,
        description="Interval of cycles of a real node, unless --cycle-seconds is set. Below 1 s nothing is "
        "measured and nothing protected.",
    )
    collect_sys_metric_outdated_interval: Seconds = Field(
        10.0, gt=0, description="Age above which samples do not count for the usage of the system."
    )
    cpu_suppress_interval_seconds: int = Field(1, description="Interval of CPU suppression; 0 = off.")
    reconcile_interval_seconds: int = Field(
        1, description="Interval of CPU burst, memory QoS, resctrl, block IO and system settings; 0 = all off."
    )
    cpu_evict_interval_seconds: int = Field(1, description="Interval of evictions for CPU; 0 = off.")
    cpu_evict_cool_time_seconds: int = Field(20, ge=0, description="Rest after an eviction for CPU.")
    memory_evict_interval_seconds: int = Field(1, description="Interval of evictions for memory; 0 = off.")
    memory_evict_cool_time_seconds: int = Field(4, ge=0, description="Rest after an eviction for memory.")
    runtime_hooks_network: Literal["unix"] = Field("unix", description="Network of the hook server; only unix.")
    runtime_hooks_addr: Path = Field(
        Path("/var/run/koordlet/koordlet.sock"),
        description="Socket of the hook server. The server is off if its folder does not exist.",
    )
    runtime_hooks_host_endpoint: Path = Field(
        Path("/var/run/koordlet/koordlet.sock"), description="Path of that socket for processes of the machine."
    )
    criproxy_facts_socket: Path | None = Field(
        None,
        description="Socket at which the agent appends the facts of the node's CRI proxy to the log. Default: none.",
    )
    runtime_hooks_failure_policy: Literal["Ignore", "Fail"] = Field(
        "Ignore", description="What the CRI proxy does with a call if the hook server fails."
    )
    runtime_hooks_plugin_failure_policy: Literal["Ignore", "Fail"] = Field(
        "Ignore", description="Whether a plug-in that fails ends the call, or the other plug-ins run."
    )
    runtime_hooks_config_path: Path = Field(
        Path("/etc/runtime/hookserver.d"), description="Folder in which hook servers register with the CRI proxy."
    )
    runtime_hooks_disable_stages: TextList = Field((), description="Stages that are not registered with the CRI proxy.")
    enable_nri_runtime_hook: bool = Field(
        True,
        description="Register as an NRI plugin of the container runtime, to change new containers.",
    )
    runtime_hooks_nri_socket_path: Path = Field(
        Path("nri/nri.sock"), description="Socket of NRI; a relative path is below --var-run-root-dir."
    )
    runtime_hooks_nri_plugin_name: str = Field("koordlet_nri", description="Name of the NRI plugin.")
    runtime_hooks_nri_plugin_index: str = Field(
        "00", pattern=r"^[0-9]{2}$", description="Two digits that order the NRI plugins of a node."
    )
    runtime_hooks_nri_connect_timeout: Seconds = Field(
        6.0,
        gt=0,
        description="Longest time until the runtime has registered the plugin. The runtime's own limit is 5 s.",
    )
    runtime_hooks_nri_backoff_duration: Seconds = Field(1.0, gt=0, description="First delay before NRI reconnects.")
    runtime_hooks_nri_backoff_cap: Seconds = Field(
        (2**62 - 1) / 1e9, gt=0, description="Longest delay before NRI reconnects."
    )
    runtime_hooks_nri_backoff_steps: int = Field(2**31 - 1, ge=0, description="Number of delays that grow.")
    runtime_hooks_nri_backoff_factor: float = Field(2.0, ge=1, description="Factor from one delay to the next.")
    hami_core_library_directory_path: Path = Field(
        Path("/usr/local/vgpu/libvgpu.so"), description="HAMi-core library on the machine, for shared GPUs."
    )
    enable_pod_taskids: bool = Field(False, description="Move threads of pods to the resctrl groups of their pods.")
    terway_qos_dir: Path = Field(Path("/var/lib/terway/qos"), description="Folder of the files of Terway.")
    disable_unset_cpu_quota: bool = Field(False, description="Leave the CPU quota of pods that own CPUs as it is.")
    qos_extension_plugins: TextList = Field(
        (), description="Switches of strategies of installed packages: A=true,B=false."
    )
    psi_collector_interval: Seconds = Field(10.0, gt=0, description="Interval of reading PSI, in the service's time.")
    cpi_collector_interval: Seconds = Field(60.0, gt=0, description="Interval of measuring CPI, in the service's time.")
    collect_cpi_timewindow: Seconds = Field(10.0, gt=0, description="Length of one CPI measurement.")
    coldpage_collector_interval: Seconds = Field(5.0, gt=0, description="Interval of reading cold pages.")
    resctrl_collector_interval: Seconds = Field(10.0, gt=0, description="Interval of reading resctrl counters.")
    enable_resctrl_collector: bool = Field(
        False, description="Collect resctrl counters; the gate ResctrlCollector must be on, too."
    )
    tsdb_path: Path | None = Field(None, description="Folder of stored samples. Default: below --state-dir.")
    tsdb_retention_duration: Seconds = Field(
        12 * 3600.0, gt=0, description="Retention of the node's samples, in the service's time."
    )
    tsdb_max_bytes: int = Field(100 * 1024 * 1024, ge=1 << 20, description="Largest size of stored samples in bytes.")
    prediction_checkpoint_filepath: Path | None = Field(
        None, description="Folder of checkpoints of usage models. Default: below --state-dir."
    )
    prediction_cold_start_duration: Seconds = Field(
        24 * 3600.0, ge=0, description="Age of a pod below which its whole request counts."
    )
    prediction_safety_margin_percent: int = Field(
        10, ge=0, le=100, description="Percent that is added to every predicted peak."
    )
    prediction_cpu_histogram_decay_halflife: Seconds = Field(
        12 * 3600.0, gt=0, description="Time in which a CPU sample loses half of its weight."
    )
    prediction_memory_histogram_decay_halflife: Seconds = Field(
        24 * 3600.0, gt=0, description="Time in which a memory sample loses half of its weight."
    )
    prediction_training_interval: Seconds = Field(60.0, gt=0, description="Interval of training the models.")
    prediction_model_expiration_duration: Seconds = Field(
        1_800.0, gt=0, description="Time without a sample after which a model is dropped."
    )
    prediction_model_checkpoint_interval: Seconds = Field(
        600.0, gt=0, description="Interval of checkpoints of a model."
    )
    prediction_model_checkpoint_max_per_step: int = Field(
        12, ge=1, description="Largest number of checkpoints that are written at a time."
    )
    audit_log_dir: Path = Field(
        Path("/var/log/koordlet"), description="Folder of the audit log; it is written if the gate AuditEvents is on."
    )
    audit_verbose: int = Field(
        3, ge=0, description="Verbosity above which audit events are left out; 0 = all are written."
    )
    audit_max_disk_space_mb: int = Field(16, ge=2, description="Largest size of the audit log in MiB.")
    audit_max_concurrent_readers: int = Field(
        4, ge=1, description="Largest number of simultaneous queries of the audit log."
    )
    audit_max_events_limit: int = Field(2048, ge=1, description="Largest page of a query of the audit log, in events.")
    enable_pprof: bool = Field(False, description="Serve profiles and stacks of the process below /debug/pprof/.")
    _notes: tuple[str, ...] = PrivateAttr(())

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each renamed flag of the command line."""
        return self._notes

    @classmethod
    def load(cls, words: Sequence[str], environ: Mapping[str, str]) -> Self:
        """A command line of Koordinator's agent is accepted, too (`koord_agent.flags`).

        Raises:
            InvalidSettings: A flag is unknown, or a setting is invalid.
            HelpRequested: The command line asks for help.
        """
        taken = accepted(words, {name for spec in cls.flag_specs() for name in spec.names} | {"h", "help"})
        settings = super().load(taken.words, {**container_paths(environ, cls.env_prefix()), **environ})
        settings._notes = taken.notes
        return settings
