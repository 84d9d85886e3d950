"""Tokens of agents' service accounts on a real API server: it says on which node the pod of a token runs."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from koord_manager.shell.gateway.api import KubernetesApi, connect_api
from koord_manager.shell.installation_keys import TokenReviews
from koordcore.bus.client.connection import Denied
from koordcore.bus.factory import bus_on
from koordcore.bus.setup.issuing import AUDIENCE, LONGEST, Refused
from koordcore.embedded.ports import LOOPBACK
from koordcore.embedded.process import http_ok
from koordcore.events.criproxy import ProxyFactsDropped
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended, Misconfigured
from support.bus.bus_worlds import sealed
from support.bus.guarded import relaying
from support.bus.installed_server import NAMES, IssuingSite, koord
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import NODE_NAMESPACE, rendered
from support.kubernetes.kubelets import add_nodes, node_document
from support.until import until

pytestmark = [pytest.mark.kubernetes]

POD = "agent-of-node-t"
ACCOUNT = f"{NODE_NAMESPACE}/koord-agent"


@pytest.fixture(scope="module")
def agent_pod(plane: ControlPlane) -> str:
    """A pod of the agents' service account on the node `node-t`."""
    add_nodes(plane, node_document("node-t"))
    containers = [{"name": "main", "image": "pause"}]
    spec = {"nodeName": "node-t", "serviceAccountName": "koord-agent", "containers": containers}
    metadata = {"name": POD, "namespace": NODE_NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return POD


def workload(name: str) -> dict[str, Any]:
    """Return the spec of the pods of a shipped workload."""
    (found,) = (item for item in rendered() if item["metadata"]["name"] == name and "template" in item.get("spec", {}))
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_a_shipped_agent_has_a_token_for_the_log_and_no_key() -> None:
    volumes = {volume["name"]: volume for volume in workload("koord-agent")["volumes"]}
    (source,) = volumes["token"]["projected"]["sources"]
    (mounted,) = (volume["secret"]["items"] for volume in volumes.values() if "secret" in volume)
    assert source["serviceAccountToken"]["audience"] == AUDIENCE
    assert source["serviceAccountToken"]["expirationSeconds"] <= LONGEST.total_seconds()
    assert [item["key"] for item in mounted] == ["ca.crt", "tls.crt", "tls.key"]


def token(plane: ControlPlane, *words: str, account: str = "koord-agent", audience: str = AUDIENCE) -> str:
    """Return a new token of a service account, as the kubelet requests it for a pod."""
    return plane.kubectl("create", "token", account, "-n", NODE_NAMESPACE, "--audience", audience, *words).strip()


def of_pod(plane: ControlPlane, pod: str) -> str:
    """Return a token that is bound to a pod."""
    return token(plane, "--bound-object-kind", "Pod", "--bound-object-name", pod)


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncGenerator[KubernetesApi]:
    client = await connect_api(plane.kubeconfig("reviewer", plane.admin_token), context="", qps=0, burst=1)
    yield client
    await client.close()


async def test_the_api_server_names_the_node_of_a_token(
    plane: ControlPlane, agent_pod: str, api: KubernetesApi
) -> None:
    found = await TokenReviews(api, ACCOUNT).check(of_pod(plane, agent_pod))
    assert found.node == "node-t"


async def test_other_tokens_are_refused(plane: ControlPlane, agent_pod: str, api: KubernetesApi) -> None:
    reviews = TokenReviews(api, ACCOUNT)
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", agent_pod)
    for given, reason in (
        ("", "no token"),
        ("x.y.z", "does not know"),
        (token(plane, *bound, audience="another"), "another audience"),
        (token(plane), "not bound to a pod"),
        (token(plane, account="default"), "not of system:serviceaccount:koordinator-nodes:koord-agent"),
        (token(plane, *bound, "--duration", "48h"), "longer than 24 hours"),
    ):
        with pytest.raises(Refused, match=reason):
            await reviews.check(given)


async def test_an_agent_connects_with_the_token_of_its_pod_and_writes_for_its_node(
    plane: ControlPlane, agent_pod: str, tmp_path: Path
) -> None:
    site = IssuingSite(tmp_path / "keys")
    site.create("--issuer")
    site.start()
    await until(lambda: http_ok(f"http://{LOOPBACK}:{site.monitor}/healthz?js-enabled-only=true"))
    koord("bus", "bootstrap", env=site.bootstrap_environment())
    kubeconfig = str(plane.kubeconfig("issuer", plane.token("koord-issuer")))
    shipped = workload("koord-issuer")["containers"][0]["args"]
    checks = [flag for flag in shipped if flag.startswith(("--service-account", "--proxy-facts"))]
    words = ["keys", "issue", str(site.folder / "issuer"), "--nats", site.url, "--cluster", NAMES.cluster]
    words += [*checks, "--kubeconfig", kubeconfig]
    issuer = await asyncio.create_subprocess_exec(sys.executable, "-m", "koordctl", *words)
    try:
        await until(lambda: site.admits("node-t", of_pod(plane, agent_pod)))
        async with (
            site.connected("manager") as manager,
            relaying(manager, NAMES),
            site.as_agent("node-t", of_pod(plane, agent_pod)) as connection,
        ):
            bus = bus_on(connection, NAMES)
            mine = sealed("nodestate", "node-t", PodsStarted(pods=["a"]), 0, "one")
            of_proxy = sealed("criproxy", "node-t", ProxyFactsDropped(facts=1), 0, "one")
            for fact in (mine, of_proxy):
                assert isinstance(await bus.events.append([fact]), Appended)
            with pytest.raises((Denied, Misconfigured), match="permission denied"):
                await bus.events.append([sealed("nodestate", "node-u", PodsStarted(pods=["a"]), 0, "two")])
    finally:
        issuer.terminate()
        await issuer.wait()
        site.kill()
