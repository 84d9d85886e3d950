"""Every service of k8s/ with a page of metrics has a PodMonitor that can reach and check it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

K8S = Path(__file__).parents[2] / "k8s"
SERVICES = ("manager", "scheduler", "descheduler", "projector", "agent", "criproxy", "devicediscovery")
OF_PODS = ("Deployment", "DaemonSet", "StatefulSet")

Json = dict[str, Any]


def documents(*folders: str) -> Iterator[tuple[str, Json]]:
    """Each object of some folders, with its folder."""
    for folder in folders:
        for file in sorted((K8S / folder).glob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                if document and document.get("kind") != "Kustomization":
                    yield folder, document


def namespace(folder: str) -> str:
    return str(yaml.safe_load((K8S / folder / "kustomization.yaml").read_text(encoding="utf-8"))["namespace"])


def test_each_service_has_one_monitor_for_a_port_that_it_has_and_a_certificate_that_it_mounts() -> None:
    monitors = {monitor["metadata"]["name"]: monitor for _, monitor in documents("monitoring")}
    assert sorted(monitors) == sorted(f"koord-{service}" for service in SERVICES)
    seen = set[str]()
    for folder, workload in documents("base", "nodes"):
        name = workload["metadata"]["name"]
        if workload["kind"] not in OF_PODS or name not in monitors:
            continue
        seen.add(name)
        monitor, pod = monitors[name], workload["spec"]["template"]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert monitor["metadata"]["namespace"] == namespace(folder)
        assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        containers = pod["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for each in containers for port in each.get("ports", [])}
        secrets = {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
        tls = endpoint["tlsConfig"]
        assert tls["ca"]["secret"] == {"name": tls["serverName"], "key": "ca.crt"}
        assert tls["serverName"] in secrets
    assert seen == set(monitors)
