"""Metrics of running services: the page that lists them, and a real Prometheus that answers dashboards and alerts.

With KOORD_WRITE_METRICS=1 the page is written from what the services serve.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import yaml
from koord_manager.shell.gateway.metrics import GatewayMetrics
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordctl.installation.nightly import USERS, Check, registry_of
from prometheus_client import CollectorRegistry, start_http_server
from support.koord_command import KoordCommand
from support.metrics_page import PAGE, Family, listed, outside_the_stack, page_of, rendered
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until_blocking

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.xdist_group("embedded-stack"),
]

ROOT = Path(__file__).parents[2]
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: web-{number}, labels: {{koordinator.sh/qosClass: LS}}}}
spec:
  containers: [{{name: main, image: nginx, resources: {{requests: {{cpu: "{cpu}", memory: 10Mi}}}}}}]
"""
GANG_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: member-{number}
  annotations: {{gang.scheduling.koordinator.sh/name: duo, gang.scheduling.koordinator.sh/min-available: "2"}}
spec:
  containers: [{{name: main, image: nginx, resources: {{requests: {{cpu: 10m, memory: 10Mi}}}}}}]
"""
STARTING = 503
HOUR = 3600
MEASURED_ATTEMPTS = 110
"""The scheduler measures plugins in every 100th attempt."""
IDLE = {
    "agent.json: Contentions by signal",
    "agent.json: Evictions",
    "agent.json: Requests to the kubelet, p99",
    "agent.json: Writes to kernel files, p99",
    "colocation.json: Evictions by agents",
    "colocation.json: Interference: contended resources",
    "descheduler.json: Audited changes",
    "descheduler.json: Duration of a migration, p90",
    "descheduler.json: Jobs held back by the object limiter",
    "descheduler.json: Pods of drained nodes by phase",
    "descheduler.json: Requests for evictions by result",
    "log.json: Conflicts",
    "log.json: Dead letters",
}
"""Panels about what does not happen on this stack: it has no kubelet, no pod disturbs another one or moves."""


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Name -> base URL of the services of a stack with two simulated nodes, this host, and pods that run or wait."""
    with server_directory() as folder:
        koord = KoordCommand(folder / "var")
        configuration = ROOT / "deploy" / "compose" / "descheduler.yaml"
        try:
            koord.run("up", "--simulated-nodes", "2", "--speed", "20", "--descheduler", str(configuration))
            pods = [POD.format(number=number, cpu="10m") for number in range(MEASURED_ATTEMPTS)]
            gang = [GANG_POD.format(number=number) for number in range(2)]
            koord.run("apply", "-f", str(ROOT / "examples" / "colocation.yaml"))
            koord.run("apply", "-f", "-", stdin="---".join([*pods, *gang, POD.format(number=900, cpu=900)]))
            until_blocking(lambda: koord.phase("web-0") == "Running", "a pod runs")
            yield {each.name: each.urls["http"] for each in koord.stack().processes if "http" in each.urls}
        finally:
            koord.run("down")


def service_of(name: str) -> str:
    """Service of a process of the stack."""
    return name.partition("-")[0]


def test_every_metric_of_a_running_service_is_on_the_page(urls: dict[str, str]) -> None:
    services: dict[str, dict[str, Family]] = outside_the_stack()
    for name, url in urls.items():
        for metric, family in page_of(url).items():
            known = services.setdefault(service_of(name), {}).setdefault(metric, family)
            known.labels |= family.labels
    if os.environ.get("KOORD_WRITE_METRICS"):
        PAGE.write_text(rendered(services))
    page = listed(PAGE.read_text())
    wrong = {
        metric: (family, page.get(metric))
        for metrics in services.values()
        for metric, family in metrics.items()
        if metric not in page or not is_described(family, page[metric])
    }
    assert wrong == {}


def is_described(family: Family, row: Family) -> bool:
    """Whether a row of the page says what a service serves; it may have more labels."""
    return (row.type, row.help) == (
        family.type,
        family.help.rstrip(".").replace("|", "/"),
    ) and family.labels <= row.labels


@pytest.fixture(scope="module")
def prometheus(urls: dict[str, str]) -> Iterator[httpx.Client]:
    """A Prometheus that has scraped all services several times."""
    with scraping(urls) as client:
        yield client


@contextlib.contextmanager
def scraping(urls: Mapping[str, str]) -> Generator[httpx.Client]:
    """Run a Prometheus with our alerts that has scraped these services several times.

    Args:
        urls: Name of a service -> base URL.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus not installed (apt-get install prometheus)")
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [url.removeprefix("http://")], "labels": {"service": name}}]}
        for name, url in urls.items()
    ]
    rules = str(ROOT / "deploy" / "alerts" / "koordstream.yml")
    with server_directory() as folder:
        file = folder / "prometheus.yml"
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        file.write_text(yaml.safe_dump({"global": every, "scrape_configs": jobs, "rule_files": [rules]}))
        port = free_ports(1)[0]
        words = [
            f"--config.file={file}",
            f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=DEADLINE_SECONDS) as client:
                until_blocking(lambda: scraped(client) == len(urls), "every service was scraped")
                yield client
        finally:
            process.terminate()
            process.wait()


def query(client: httpx.Client, expression: str) -> list[object]:
    """Result of a query; the query must be valid."""
    response = client.get("/api/v1/query", params={"query": expression})
    if response.status_code == STARTING:
        return []  # it starts
    answer = response.json()
    assert answer["status"] == "success", (expression, answer)
    found: list[object] = answer["data"]["result"]
    return found


def scraped(client: httpx.Client) -> int:
    """Number of services with at least three scrapes."""
    try:
        return len(query(client, "count_over_time(up[1m]) >= 3 and up == 1"))
    except httpx.HTTPError:
        return 0


def test_every_panel_of_the_dashboards_has_data(prometheus: httpx.Client) -> None:
    panels = {
        f"{file.name}: {panel['title']}": [target["expr"] for target in panel["targets"]]
        for file in sorted((ROOT / "deploy" / "dashboards").glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
    }

    def empty() -> set[str]:
        return {
            title for title, expressions in panels.items() if not any(query(prometheus, each) for each in expressions)
        }

    with contextlib.suppress(AssertionError):
        until_blocking(lambda: empty() <= IDLE)
    assert "; ".join(sorted(empty() - IDLE)) == ""


def test_no_alert_fires_and_each_is_evaluated(prometheus: httpx.Client) -> None:
    def rules() -> dict[str, str]:
        groups = prometheus.get("/api/v1/rules").json()["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    wanted = yaml.safe_load((ROOT / "deploy" / "alerts" / "koordstream.yml").read_text())["groups"]
    names = {rule["alert"] for group in wanted for rule in group["rules"]}
    until_blocking(lambda: set(rules().values()) == {"ok"}, "all alerts are evaluated")
    assert set(rules()) == names
    assert firing(prometheus) == set()


def firing(client: httpx.Client) -> set[tuple[str, str]]:
    """Name, and kind or check, of each alert that fires."""
    alerts = client.get("/api/v1/alerts").json()["data"]["alerts"]
    labels = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
    return {(each["alertname"], each.get("kind", each.get("check", ""))) for each in labels}


def test_a_first_difference_and_checks_of_the_night_that_failed_or_are_missing_fire() -> None:
    now, registry = time.time(), CollectorRegistry()
    gateway, long_ago = GatewayMetrics(registry), now - 27 * HOUR
    results = {**dict.fromkeys(USERS, Check(ran=now, succeeded=now)), "backup": Check(ran=long_ago, succeeded=long_ago)}
    registry.register(registry_of(results))
    port = free_ports(1)[0]
    server, thread = start_http_server(port, LOOPBACK, registry)
    try:
        with scraping({"manager": f"http://{LOOPBACK}:{port}"}) as client:
            until_blocking(lambda: ("KoordNightlyCheckMissing", "backup") in firing(client))
            later = {("KoordDrift", "pods"), ("KoordNightlyCheckFailed", "drill")}
            assert firing(client) & later == set()
            gateway.drifted("pods")
            results["drill"] = Check(ran=now, succeeded=long_ago)
            until_blocking(lambda: later <= firing(client))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
