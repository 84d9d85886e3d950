"""The page of the documentation that lists every metric, and the metrics pages of running services."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from koord_agent.shell.metrics.agent_metrics import KubeletRequests
from koord_agent.shell.metrics.series import PREFIX, SERIES
from koord_criproxy.metrics import ProxyMetrics
from koord_criproxy.records import Store
from koord_devicediscovery.metrics import DiscoveryMetrics
from koord_manager.shell.gateway.metrics import GatewayMetrics
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koordcore.service.telemetry.metrics import Metrics
from koordctl.installation.nightly import USERS, Check, registry_of
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.sources import all_sources
from support.until import DEADLINE_SECONDS

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "metrics.md"
HEAD: Final = """# Metrics

Each service serves its metrics at `/metrics` in the text format of Prometheus. Tests compare these tables with
the pages of running services and with the code. Scrape settings, alerts and dashboards are in `deploy/`.
The [runbook](runbook.md) says what to do when an alert fires.

Where [access](security.md#access-to-the-http-apis) is closed, strangers see only series whose labels have words of
our own. Series that may name pods, nodes, namespaces, quotas, Reservations or other objects need a token with the role
`metrics`, which `view` and `operate` include. In Prometheus: `authorization: {credentials_file: FILE}`. A token that is
not valid gets status 401.

With the Prometheus operator, `kubectl apply -k k8s/monitoring` makes a PodMonitor for each service. Its files say
which namespace and selectors they expect, and where a token goes.

The label `le` of histograms is left out. Metrics that begin with `process_` or `python_` are those of the Prometheus
client for Python.
"""
_PROCESS: Final = ("process_", "python_")
_ORDER: Final = (
    "every service",
    "manager",
    "scheduler",
    "descheduler",
    "projector",
    "agent",
    "criproxy",
    "devicediscovery",
    "nightly",
)
_SHARED: Final = 3
"""A metric of at least this many services is listed once, for every service."""


@dataclass
class Family:
    """A metric: its type, its description, and the labels of its samples."""

    type: str
    help: str
    labels: set[str] = field(default_factory=lambda: set[str]())


def families(text: str) -> dict[str, Family]:
    """Name -> metric of a metrics page, without those of the process. Names of counters end in `_total`."""
    found: dict[str, Family] = {}
    for each in text_string_to_metric_families(text):
        if each.name.startswith(_PROCESS):
            continue
        name = f"{each.name}_total" if each.type == "counter" else each.name
        labels = {label for sample in each.samples for label in sample.labels} - {"le"}
        family = found.setdefault(name, Family(each.type, each.documentation))
        family.labels |= labels
    return found


def page_of(url: str) -> dict[str, Family]:
    """Metrics of a running service."""
    return families(httpx.get(f"{url}/metrics", trust_env=False, timeout=DEADLINE_SECONDS).text)


def defined_labels() -> dict[str, set[str]]:
    """Name without `_total` -> labels of each metric that the code defines under a literal name."""
    calls = (node for source in all_sources() for node in source.nodes if isinstance(node, ast.Call))
    found: dict[str, set[str]] = {}
    for call in calls:
        kind = ast.unparse(call.func).rpartition(".")[2].lower().removesuffix("metricfamily")
        texts = [each for each in call.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if kind in ("counter", "gauge", "histogram") and len(texts) == 2:
            labels = [*call.args[2:], *(each.value for each in call.keywords if each.arg == "labels")]
            names = [name for each in labels for name in ast.walk(each) if isinstance(name, ast.Constant)]
            found[str(texts[0].value)] = {str(name.value) for name in names}
    return found


def outside_the_stack() -> dict[str, dict[str, Family]]:
    """Service -> metrics of the processes and parts that no stack of a test has, as they define them."""
    proxy, discovery = Metrics("criproxy"), Metrics("devicediscovery")
    manager, agent = CollectorRegistry(), CollectorRegistry()
    GatewayMetrics(manager)
    WebhookMetrics(manager)
    KubeletRequests(agent, "node")
    of_nodes = {PREFIX + name: Family("gauge", meaning, set(labels)) for name, (meaning, labels) in SERIES.items()}
    ProxyMetrics(proxy, Store())
    DiscoveryMetrics(discovery)
    found = {
        name: families(generate_latest(registry).decode())
        for name, registry in (
            ("manager", manager),
            ("agent", agent),
            ("criproxy", proxy.registry),
            ("devicediscovery", discovery.registry),
            ("nightly", registry_of({check: Check() for check in USERS})),
        )
    }
    found["agent"] |= of_nodes
    return found


def rendered(services: Mapping[str, Mapping[str, Family]]) -> str:
    """The page for the metrics of services."""
    defined = defined_labels()
    users: dict[str, list[str]] = {}
    for service, metrics in services.items():
        for name in metrics:
            users.setdefault(name, []).append(service)
    tables: dict[str, dict[str, Family]] = {}
    for name, services_of in users.items():
        owners = ["every service"] if len(services_of) >= _SHARED else services_of
        for owner in owners:
            parts = [services[service][name] for service in services_of]
            labels = {label for part in parts for label in part.labels} | defined.get(
                name.removesuffix("_total"), set()
            )
            family = Family(parts[0].type, parts[0].help, labels)
            tables.setdefault(owner, {})[name] = family
    text = HEAD
    for owner in _ORDER:
        text += f"\n## {owner[0].upper()}{owner[1:]}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        for name, family in sorted(tables.get(owner, {}).items()):
            labels = ", ".join(f"`{label}`" for label in sorted(family.labels))
            text += f"| `{name}` | {family.type} | {labels} | {family.help.rstrip('.').replace('|', '/')} |\n"
    return text


def listed(text: str) -> dict[str, Family]:
    """Name -> metric, for every metric on the page."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    return {row[0].strip("`"): Family(row[1], row[3], set(re.findall(r"`(\w+)`", row[2]))) for row in rows}
