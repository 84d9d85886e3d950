"""Command lines of the reference's agent: what is known under another name, what does nothing here, what is refused."""

from pathlib import Path

import pytest
from koord_agent.domain.strategies.runner import Interval
from koord_agent.flags import ADDRESS
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.probe import host_roots
from koordcore.service.settings import InvalidSettings

SPECIFIED = """
collect-res-used-interval collect-sys-metric-outdated-interval collect-node-cpu-info-interval
collect-node-storage-info-interval cpi-collector-interval collect-cpi-timewindow psi-collector-interval
coldpage-collector-interval resctrl-collector-interval enable-pagecache-collector enable-resctrl-collector
reconcile-interval-seconds cpu-suppress-interval-seconds cpu-evict-interval-seconds cpu-evict-cool-time-seconds
memory-evict-interval-seconds memory-evict-cool-time-seconds only-evict-by-api qos-extension-plugins tsdb-path
tsdb-retention-duration tsdb-max-bytes tsdb-enable-prometheus-metric tsdb-stripe-size tsdb-wal-segment-size
tsdb-max-block-chunk-segment-size tsdb-min-block-duration tsdb-max-block-duration tsdb-head-chunks-write-buffer-size
metric-gc-interval-seconds metric-expire-seconds prediction-checkpoint-filepath prediction-cold-start-duration
prediction-safety-margin-percent prediction-memory-histogram-decay-halflife prediction-cpu-histogram-decay-halflife
prediction-training-interval prediction-model-expiration-duration prediction-model-checkpoint-interval
prediction-model-checkpoint-max-per-step kubelet-preferred-address-type kubelet-sync-interval kubelet-sync-timeout
kubelet-insecure-tls kubelet-read-only-port node-topology-sync-interval disable-query-kubelet-config
enable-node-metric-report enable-pod-taskids xpu-enforce-collect-from-device-infos report-interval
resource-force-update-seconds audit-log-dir audit-verbose audit-max-disk-space-mb audit-max-concurrent-readers
audit-max-events-limit kube-api-qps kube-api-burst cgroup-root-dir proc-root-dir sys-root-dir sys-fs-root-dir
var-run-root-dir run-root-dir var-lib-kubelet-dir default-runtime-type containerd-endpoint docker-endpoint
pouch-endpoint pod-resources-proxy-path xpu-device-infos-dir hami-core-library-directory-path configmap-name
configmap-namespace feature-gates addr enable-pprof pprof-addr
"""
"""Of the agent's specification, 1 and 2.2."""


def test_every_flag_of_the_specification_is_taken_or_told_to_have_no_effect() -> None:
    known = {name for spec in AgentSettings.flag_specs() for name in spec.names}
    assert [name for name in SPECIFIED.split() if name not in {*known, ADDRESS}] == []


def test_a_command_line_of_the_reference_is_read() -> None:
    words = [
        "-cgroup-root-dir=/host-cgroup/",
        "--tsdb-stripe-size=16",
        "-kube-api-qps",
        "20",
        "--enable-pod-taskids",
        "-psi-collector-interval-seconds=15",
        "--cpu-suppress-interval",
        "2s",
        "--only-evict-by-api",
        "--memory-evict-interval-seconds",
        "-1",
        "-feature-gates=AllAlpha=true",
    ]
    settings = AgentSettings.load(words, {})
    assert settings.cgroup_root == Path("/host-cgroup")
    assert settings.psi_collector_interval == 15.0
    assert settings.cpu_suppress_interval_seconds == 2
    assert settings.memory_evict_interval_seconds == -1
    assert settings.only_evict_by_api
    assert settings.feature_gates.enabled("PSICollector")
    assert settings.enable_pod_taskids
    assert len(settings.notes) == 2
    idle = {spec.names[0]: spec.no_effect for spec in settings.given_idle_flags}
    assert idle.keys() == {"tsdb-stripe-size", "kube-api-qps"}
    assert idle["kube-api-qps"] == "the agent speaks to the log, not to the API server"


@pytest.mark.parametrize(
    ("words", "host", "port"),
    [
        (["--addr=:9316"], "0.0.0.0", 9316),
        (["-addr", "127.0.0.1:80", "-v", "4", "--logtostderr"], "127.0.0.1", 80),
        (["--addr=[::1]:9316", "--enable-pprof=false"], "::1", 9316),
    ],
)
def test_the_address_of_the_daemonset_is_served_on(words: list[str], host: str, port: int) -> None:
    settings = AgentSettings.load(words, {})
    assert (settings.http_host, settings.http_port) == (host, port)


@pytest.mark.parametrize("word", ["--collect-everything", "--feature-gates=Telepathy=true", "--tsdb-max-bytes=few"])
def test_what_nobody_knows_is_refused_by_name(word: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        AgentSettings.load([word], {})
    assert word.partition("=")[0].strip("-").replace("-", "_") in str(refused.value).replace("-", "_")


def test_in_a_container_the_machine_is_where_the_daemonset_mounts_it() -> None:
    roots = host_roots(AgentSettings.load(["--sys-root-dir=/elsewhere"], {"agent_mode": "containerMode"}))
    assert roots.cgroup == Path("/host-cgroup")
    assert roots.resctrl == Path("/host-sys-fs/resctrl")
    assert roots.sys == Path("/elsewhere"), "flags override"
    on_host = host_roots(AgentSettings.load([], {"agent_mode": "hostMode"}))
    assert (on_host.cgroup, on_host.resctrl) == (Path("/sys/fs/cgroup"), Path("/sys/fs/resctrl"))


def test_a_turn_comes_with_the_nearest_round_and_never_when_it_is_switched_off() -> None:
    every_round, every_third, never = Interval(1_000, 1_000), Interval(3_000, 1_000), Interval(0, 1_000)
    rounds = [1_000, 1_999, 3_001, 3_998, 5_000, 6_000, 7_000]
    assert [every_round.is_due(at) for at in rounds] == [True] * 7
    assert [at for at in rounds if every_third.is_due(at)] == [1_000, 3_998, 7_000]
    assert not any(never.is_due(at) for at in rounds)
    assert every_third.is_due(10), "the clock was set back"
