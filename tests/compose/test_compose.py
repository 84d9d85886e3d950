"""The image and docker-compose.yml on a real dockerd: built, started, killed, stopped and started again.

`make test-compose` runs it: building takes minutes.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from koordcore.embedded.ports import free_ports
from support.compose import (
    BASE,
    CORE,
    IMAGE,
    MONITORING,
    ROOT,
    Compose,
    docker,
    missing_monitoring,
    missing_programs,
    prepared_images,
)
from support.guide import GUIDE, Reader
from support.pages import sections_for
from support.until import until_blocking

REASON = missing_programs()
pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800), pytest.mark.skipif(bool(REASON), reason=REASON)]

SERVICES = ("manager", "scheduler", "projector", "agent", "criproxy", "devicediscovery")
MIB = 1 << 20
PODS = 40


@pytest.fixture(scope="module", autouse=True)
def images() -> Iterator[None]:
    with prepared_images():
        yield


def test_the_image_is_small_and_runs_every_service_without_rights() -> None:
    size, base = (int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in (IMAGE, BASE))
    print(f"image above its base: {(size - base) / MIB:.1f} MiB")  # for the record
    assert size - base <= 250 * MIB
    assert docker("image", "inspect", "--format", "{{.Config.User}}", IMAGE) == "65532:65532"
    confined = ("--read-only", "--cap-drop=ALL", "--network=none", "--security-opt=no-new-privileges")
    for service in SERVICES:
        assert f"Usage: koord-{service}" in docker("run", "--rm", *confined, IMAGE, f"koord-{service}", "--help")
    compiled = "import koord_scheduler.domain.loop.cycle.attempt as a; print(a.__file__)"
    assert docker("run", "--rm", *confined, IMAGE, "python3", "-c", compiled).endswith(".so")


def test_the_bill_of_materials_names_what_the_image_holds() -> None:
    parts = json.loads(docker("run", "--rm", IMAGE, "cat", "/opt/koord/sbom.cdx.json"))["components"]
    listed = {f"{part['name'].lower()}=={part['version']}" for part in parts}
    show = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    installed = docker("run", "--rm", IMAGE, "python3", "-c", show).lower().replace("_", "-").split()
    third_party = {each for each in installed if not each.startswith("koord")}
    assert third_party
    assert third_party <= listed


@pytest.fixture
def system() -> Iterator[Compose]:
    compose = Compose("koordtest", free_ports(1)[0])
    compose("down", "--volumes", "--timeout", "5", check=False)
    try:
        yield compose
    finally:
        compose("down", "--volumes", "--timeout", "5", check=False)


def test_nothing_is_lost_when_containers_are_killed_and_the_system_restarts(system: Compose) -> None:
    print(f"up to a placed pod: {system.start_to_placed_pod():.1f} s")  # for the record, not asserted

    system.apply_pods(1, PODS)
    for service in ("scheduler-1", "manager-1", "nats", "postgres", "projector", "agent"):
        docker("kill", system.container(service))
        docker("start", system.container(service))
    system.apply_pods(1 + PODS, PODS)
    system.wait_healthy()
    until_blocking(
        lambda: len(system.pods()) == 1 + 2 * PODS and all(system.pods().values()), "all placed", seconds=180
    )
    before = system.pods()

    system("stop", "--timeout", "10")
    system("start")
    system.wait_healthy()
    assert system.pods() == before
    assert "equal" in system.koord("verify")


DOCKER = """#!/bin/bash
# docker compose as the page of the guide writes it, with the images that exist here
[ "$1" = compose ] || exec {docker} "$@"
shift
case "$1" in
    up) exec docker-compose up --detach --no-build {core} ;;
    run) [ "$3" = -T ] && shift; exec docker-compose run --rm -T "${{@:3}}" 2>/dev/null ;;
    exec) exec docker-compose exec -T "${{@:2}}" ;;
    *) exec docker-compose "$@" ;;
esac
"""


IN_SENTENCES = (
    "docker compose ps",
    "docker compose logs",
    "docker compose logs nightly",
    "docker stats --no-stream",
    "docker compose exec nightly koord nightly /nights --keys /etc/koord --server nats://drill-server:4222 --once",
    "docker compose run --rm keys koord keys create /keys --cluster dev --log-size 20Gi",
    "docker compose restart nats",
    "docker compose run --rm bootstrap koord bus bootstrap --log-size 20Gi",
)
"""Commands in sentences of the pages."""


def test_every_command_of_the_guide_prints_what_its_page_shows(system: Compose, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text(DOCKER.format(docker=shutil.which("docker"), core=" ".join((*CORE, "nightly", "drill-server"))))
    program.chmod(0o755)
    image = {"IMAGE": IMAGE, "IMAGE_FLAGS": "--network host", "COMPOSE_PROJECT_NAME": "koordtest"}
    path = f"{tmp_path}:{os.environ['PATH']}"

    reader = Reader(ROOT, {**system.environment, **image, "PATH": path})
    reader.follow(GUIDE / "install-on-compose.md")
    copied = ROOT / "mirror.tar"
    try:
        for page in sections_for(__file__, tmp_path / "pages"):
            reader.follow(page)
        assert "./nats-mirror.conf" in reader.run(f"tar -t -f {copied.name}")
    finally:
        copied.unlink(missing_ok=True)
    for command in IN_SENTENCES:
        reader.run(command)

    system.wait_healthy()
    assert "20480" in system.koord("bus", "streams")


def has_caught_up(container: str) -> bool:
    """Whether a NATS server has all of the streams that it stores; it may count as healthy before it knows a leader."""

    def ask(path: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:8222/{path}"
        return json.loads(docker("exec", container, "wget", "-q", "-O", "-", url, check=False) or "{}")

    accounts = ask("jsz?accounts=true&streams=true").get("account_details", [])
    streams = [stream for account in accounts for stream in account.get("stream_detail", ())]
    knows_leaders = bool(streams) and all(stream.get("cluster", {}).get("leader") for stream in streams)
    return knows_leaders and ask("healthz").get("status") == "ok"


def test_three_servers_replicate_the_log_and_one_may_fail() -> None:
    compose = Compose("koordha", free_ports(1)[0], "--env-file", "deploy/compose/ha.env", "--profile", "ha")
    servers = ("nats", "nats-2", "nats-3")
    try:
        compose("up", "--detach", "--no-build", *servers, *CORE)
        compose.wait_healthy(*servers)

        def are_replicated() -> bool:
            streams = {line.split()[0]: line.split()[-2:] for line in compose.koord("bus", "streams").splitlines()}
            return streams["KOORD_EV_dev"] == streams["KOORD_AUDIT_dev"] == ["3", "yes"]

        until_blocking(are_replicated, "every server has all facts")
        containers = [compose.container(server) for server in servers]
        for number, server in enumerate(servers):
            docker("kill", compose.container(server))
            compose.apply_pods(5 * number, 5)
            wanted = 5 * (number + 1)
            until_blocking(
                lambda wanted=wanted: sum(map(bool, compose.pods().values())) == wanted, "all placed", seconds=180
            )
            docker("start", compose.container(server))
            compose.wait_healthy(*servers)
            until_blocking(lambda: all(map(has_caught_up, containers)), "all have caught up", seconds=180)
        assert "equal" in compose.koord("verify")
    finally:
        compose("down", "--volumes", "--timeout", "5", check=False)


THROUGH_PROXY = "DOCKER_HOST=unix:///run/koord-runtimeproxy/runtimeproxy.sock docker ps"


def test_this_machine_is_a_node_with_an_agent_and_a_proxy() -> None:
    compose = Compose("koordhost", free_ports(1)[0], "--profile", "host")
    node = ("agent-host", "criproxy", "objects-host")
    try:
        compose("up", "--detach", "--no-build", *CORE, *node)
        compose.wait_healthy(*node)
        until_blocking(lambda: "this-host" in compose.koord("top", "node", check=False), "a report", seconds=180)
        assert "koordhost" in Reader(ROOT, {}).run(THROUGH_PROXY)
    finally:
        compose("down", "--volumes", "--timeout", "5", check=False)


def test_the_trace_demo_runs_on_compose() -> None:
    port = free_ports(1)[0]
    compose = Compose("koord-demo", port)
    flags = {"COMPOSE_DEMO_FLAGS": "--nodes 20 --limit 100 --seconds 2", "COMPOSE_DEMO_SERVICES": " ".join(CORE)}
    try:
        done = subprocess.run(
            ["make", "compose-demo"], cwd=ROOT, env={**compose.environment, **flags}, capture_output=True, check=False
        )
        printed = done.stdout.decode()
        assert done.returncode == 0, printed + done.stderr.decode()
        assert printed.count("held") == 5
    finally:
        subprocess.run(["make", "compose-down"], cwd=ROOT, env=compose.environment, capture_output=True, check=False)


def test_a_service_reads_its_own_key_only_and_renewed_certificates_need_no_restart(system: Compose) -> None:
    system("up", "--detach", "--no-build", *CORE)
    system.wait_healthy()
    for service in ("manager-1", "scheduler-1", "projector", "agent"):
        seeds = docker("exec", system.container(service), "find", "/", "-xdev", "-name", "*.seed", check=False)
        mounted = docker("exec", system.container(service), "find", "/etc/koord", "-name", "*.seed")
        assert mounted == "/etc/koord/nats.seed"
        assert seeds == ""
        assert docker("exec", system.container(service), "id", "-u") == "65532"

    assert asked(system, IN_CLEAR, *SERVERS) == [f"{server} refuses" for server in SERVERS]
    assert docker("exec", system.container("postgres"), "psql", "-U", "koord", "-Atc", SESSIONS) == "t|t"
    before = asked(system, CERTIFICATES, *SERVERS)
    started = [system.state(server.partition(":")[0])["StartedAt"] for server in SERVERS]
    lost = " ".join(f"/keys/{user}/tls.key" for user in USERS)
    system("run", "--rm", "--no-deps", "-T", "keys", "sh", "-c", f"rm {lost} && koord keys create /keys")
    until_blocking(
        lambda: not set(asked(system, CERTIFICATES, *SERVERS)) & set(before), "every server shows its new certificate"
    )
    assert len(set(before)) == len(USERS)
    assert [system.state(server.partition(":")[0])["StartedAt"] for server in SERVERS] == started
    assert "equal" in system.koord("verify")


@pytest.mark.skipif(bool(missing_monitoring()), reason=missing_monitoring())
def test_traces_and_metrics_travel_over_tls_to_servers_with_certificates_of_their_own(system: Compose) -> None:
    system("up", "--detach", "--no-build", *CORE, "nightly", *MONITORING)
    system.wait_healthy()
    system.apply_pods(0, 1)
    until_blocking(lambda: {"koord-manager", "koord-scheduler", "koord-agent"} <= services_in_jaeger(system), "traces")
    until_blocking(lambda: scraped(system) == {"up"}, "Prometheus reads the metrics of every service")

    open_ports = {service: docker("exec", system.container(service), "python3", "-c", OPEN) for service in MONITORING}
    assert open_ports == {"otel-collector": "4318", "jaeger": "4317 16686", "prometheus": "9090"}
    servers = [f"{service}:{port}" for service, ports in open_ports.items() for port in ports.split()]
    assert asked(system, IN_CLEAR, *servers) == [f"{server} refuses" for server in servers]
    before = asked(system, CERTIFICATES, *servers)
    assert len(set(before)) == len(MONITORING)
    lost = " ".join(f"/keys/{service}/tls.key" for service in MONITORING)
    servers.remove("jaeger:16686")  # takes it at a restart
    system("run", "--rm", "--no-deps", "-T", "keys", "sh", "-c", f"rm {lost} && koord keys create /keys")
    until_blocking(
        lambda: not set(asked(system, CERTIFICATES, *servers)) & set(before), "every server shows its new certificate"
    )


def services_in_jaeger(compose: Compose) -> set[str]:
    """Names of the services whose traces Jaeger has."""
    return set(json.loads(asked(compose, READ, "https://jaeger:16686/api/services")[0])["data"] or ())


def scraped(compose: Compose) -> set[str]:
    """States of the last scrapes of all targets of Prometheus."""
    answer = json.loads(asked(compose, READ, "https://prometheus:9090/api/v1/targets")[0])
    return {target["health"] for target in answer["data"]["activeTargets"]}


USERS = ("manager", "scheduler", "descheduler", "projector", "agent", "postgres")
SERVERS = ("manager-1:8080", "scheduler-2:8080", "descheduler-1:8080", "projector:8080", "agent:8080", "postgres:5432")
REACH = """
import http.client, psycopg, socket, ssl, sys, urllib.request
trusting = ssl.create_default_context(cafile="/etc/koord/ca.crt")
"""
READ = "print(urllib.request.urlopen(sys.argv[1], timeout=10, context=trusting).read().decode())"
OPEN = """
listening = set()
for line in [*open("/proc/net/tcp"), *open("/proc/net/tcp6")]:
    address, port, state = *line.split()[1].partition(":")[::2], line.split()[3]
    if state == "0A" and not address.endswith(("7F", "01000000")):  # loopback addresses
        listening.add(int(port, 16))
print(*sorted(listening))
"""
IN_CLEAR = """
for server in sys.argv[1:]:
    host, _, port = server.partition(":")
    try:
        if host == "postgres":
            psycopg.connect("postgresql://koord@postgres/koord?passfile=/etc/koord/pgpass&sslmode=disable")
        plain = http.client.HTTPConnection(host, int(port), timeout=10)
        plain.request("GET", "/metrics")
        answer = plain.getresponse()
        if answer.status == 400 and b"HTTP request to an HTTPS server" in answer.read():
            print(server, "refuses")
    except (OSError, http.client.HTTPException, psycopg.OperationalError):
        print(server, "refuses")
"""
CERTIFICATES = """
for server in sys.argv[1:]:
    host, _, port = server.partition(":")
    plain = socket.create_connection((host, int(port)), timeout=10)
    if host == "postgres":
        plain.sendall(bytes([0, 0, 0, 8, 4, 210, 22, 47]))  # the request for TLS
        assert plain.recv(1) == b"S"
    print(trusting.wrap_socket(plain, server_hostname=host).getpeercert()["serialNumber"])
"""
SESSIONS = """
select bool_and(ssl), count(*) > 0 from pg_stat_ssl join pg_stat_activity using (pid) where client_addr is not null
"""


def asked(compose: Compose, program: str, *words: str) -> list[str]:
    """Run a program in the container of the projector, and return the lines that it prints."""
    return docker("exec", compose.container("projector"), "python3", "-c", REACH + program, *words).splitlines()
