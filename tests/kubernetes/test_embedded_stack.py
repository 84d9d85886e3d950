"""`koord up --kubernetes`: kubectl is answered by our services on an API server of the stack's own.

The stack is the one that docs/kubernetes.md starts.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from koordctl.stack.kubernetes.api import Access, read_kubeconfig
from koordctl.stack.kubernetes.programs import admin_kubeconfig, folder_of
from support.guide import Reader
from support.kubernetes.control_plane import ROOT, TOOLS, Answer, missing_programs, run_kubectl
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until_blocking

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, object]
PAGE = ROOT / "docs" / "kubernetes.md"
START = ("--kubernetes", "--kubernetes-binaries", str(TOOLS), "--no-agent", "--simulated-nodes", "3")


@dataclass(frozen=True)
class EmbeddedStack:
    """A stack in a folder of its own."""

    var: Path

    def koord(self, *words: str) -> Answer:
        """Run a `koord` command on the stack."""
        command = [sys.executable, "-m", "koordctl", *words]
        env = {**os.environ, "KOORD_VAR": str(self.var), "COLUMNS": "300"}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        return Answer(done.stdout, done.stderr, done.returncode)

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return admin_kubeconfig(folder_of(self.var))

    def kubectl(self, *words: str, stdin: str | None = None) -> Answer:
        """Run kubectl as the administrator."""
        return run_kubectl(self.kubeconfig, *words, stdin=stdin)

    def phase(self, pod: str) -> str:
        """Return the phase of a pod of the namespace default."""
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}").out


@pytest.fixture(scope="module")
def stack() -> Generator[EmbeddedStack]:
    """The stack that the page starts, with an API server, three simulated nodes and the pod `web`."""
    reason = missing_programs()
    if reason is not None:
        pytest.skip(reason)
    with server_directory() as folder:
        found = EmbeddedStack(folder / "var")
        path = f"{Path(sys.executable).parent}:{TOOLS}:{os.environ['PATH']}"
        reader = Reader(folder, {"KOORD_VAR": str(found.var), "PATH": path})
        try:
            reader.follow(PAGE)
            yield found
        finally:
            found.koord("down")


def pod(name: str, **spec: object) -> str:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}
    return yaml.safe_dump({**document, "spec": {"containers": [{"name": "main", "image": "pause"}], **spec}})


def test_a_pod_of_kubectl_is_placed_by_us_and_runs(stack: EmbeddedStack) -> None:
    explained = stack.koord("explain", "pod", "web")

    assert stack.phase("web") == "Running"
    assert explained.out.startswith("Pod default/web: Running on node-")
    assert "3 of 3 nodes were feasible" in explained.out


def test_a_pod_that_somebody_else_bound_is_known(stack: EmbeddedStack) -> None:
    stack.kubectl("apply", "-f", "-", stdin=pod("foreign", nodeName="node-2", schedulerName="other"))
    until_blocking(lambda: stack.phase("foreign") == "Running", "the pod runs")

    def row() -> list[str]:
        lines = stack.koord("get", "pods").out.splitlines()
        return next(line.split() for line in (*lines, "") if " foreign " in line or not line)

    until_blocking(lambda: "Running" in row(), "`koord get` shows it")
    assert row()[4] == "node-2"
    assert stack.koord("explain", "pod", "foreign").out.startswith("Pod default/foreign: Running on node-2")


def test_a_deployment_gets_pods_and_loses_them(stack: EmbeddedStack) -> None:
    assert stack.kubectl("create", "deployment", "shop", "--image=pause", "--replicas=2").code == 0

    def ready() -> str:
        return stack.kubectl("get", "deployment", "shop", "-o", "jsonpath={.status.readyReplicas}").out

    until_blocking(lambda: ready() == "2", "both replicas are ready")
    assert "shop" in stack.koord("get", "deployments").out
    assert stack.koord("get", "deployment", "shop", "-o", "name").out == "deployment/shop\n"
    assert stack.kubectl("delete", "deployment", "shop", "--cascade=foreground", "--timeout=60s").code == 0
    until_blocking(lambda: "shop" not in stack.koord("get", "deployments").out, "the log has its end")


def test_the_status_names_the_holder_of_the_lease(stack: EmbeddedStack) -> None:
    status = stack.koord("status")

    assert status.code == 0, status.out
    assert "manager: manager_" in status.out
    assert f"kubeconfig {stack.kubeconfig}" in status.out


def test_objects_come_from_the_api_server_only(stack: EmbeddedStack) -> None:
    refused = stack.koord("apply", "-f", "examples/pod.yaml")

    assert refused.code == 1
    assert "use kubectl" in refused.out + refused.err


def test_the_credentials_are_secret_and_the_rights_are_few(stack: EmbeddedStack) -> None:
    access = read_kubeconfig(stack.kubeconfig)
    kubelets = folder_of(stack.var) / "kubelets.kubeconfig"

    assert stat.S_IMODE(stack.kubeconfig.stat().st_mode) == 0o600
    assert anonymous_status(access) == 401
    assert run_kubectl(kubelets, "auth", "can-i", "get", "secrets").out.strip() == "no"
    assert run_kubectl(kubelets, "auth", "can-i", "delete", "pods").out.strip() == "yes"


def anonymous_status(access: Access) -> int:
    """Return the status of a request without credentials."""
    with httpx.Client(verify=False, trust_env=False, timeout=DEADLINE_SECONDS) as client:
        return client.get(f"{access.url}/api/v1/nodes").status_code


def test_a_later_start_goes_on_with_the_same_objects(stack: EmbeddedStack) -> None:
    stack.kubectl("apply", "-f", "-", stdin=pod("stays"))
    until_blocking(lambda: stack.phase("stays") == "Running", "the pod runs")
    uid = stack.kubectl("get", "pod", "stays", "-o", "jsonpath={.metadata.uid}").out
    stack.koord("down")

    without = stack.koord("up", "--no-agent")
    again = stack.koord("up", *START)

    assert (without.code, "--kubernetes" in without.err) == (1, True)
    assert again.code == 0, again.err + again.out
    assert stack.kubectl("get", "pod", "stays", "-o", "jsonpath={.metadata.uid}").out == uid
    stack.kubectl("apply", "-f", "-", stdin=pod("next"))
    until_blocking(lambda: stack.phase("next") == "Running", "a new pod runs")
    assert stack.koord("verify").code == 0
