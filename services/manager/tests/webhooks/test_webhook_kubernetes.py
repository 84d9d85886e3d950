"""The webhooks behind an emulated API server: installed, called over TLS by rules and selectors, kept right."""

import asyncio
import base64
import contextlib
import copy
import json
from collections.abc import AsyncGenerator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.webhooks import TEMPLATE_ANNOTATION, configuration
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.webhooks.certificates import WebhookEnvironment
from koordcore.bus.factory import memory_bus
from koordcore.ports.leadership import Term
from koordcore.protocol.crd.catalogue import definition_texts
from support.kubernetes.answers import ApiError
from support.kubernetes.apiserver import ApiServer, running_api_server
from support.kubernetes.authorization import manager_user
from support.manager.loops import AlwaysLeading
from support.manager.webhook_world import WebhookWorld, webhook_world
from support.until import until

pytestmark = pytest.mark.slow

Json = dict[str, Any]
NAMES = WebhookEnvironment()
SERVICE = f"{NAMES.namespace}/{NAMES.service}"
EVERYTHING = Options(gates={"ReservationMutatingWebhook": True, "NodeValidatingWebhook": True})
QUOTA = "scheduling.sigs.k8s.io/v1alpha1"


def pod(name: str, *, cpu: str = "1", **labels: str) -> Json:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "pause", "resources": resources}]},
    }


@lru_cache(maxsize=1)
def definitions() -> list[Json]:
    """The definitions of our kinds."""
    return [yaml.load(text, Loader=yaml.CSafeLoader) for text in definition_texts().values()]


@contextlib.asynccontextmanager
async def behind_api_server(directory: Path, *flags: str) -> AsyncGenerator[tuple[ApiServer, WebhookWorld]]:
    """An API server with our configuration installed, and a manager that answers it, with the rights of k8s/."""
    async with running_api_server() as server:
        server.users["manager"] = manager_user()
        for definition in definitions():
            await server.apply(definition)
        for kind, name in (("mutate", NAMES.mutating), ("validate", NAMES.validating)):
            await server.apply(configuration(kind, name, EVERYTHING, NAMES.address, b""))  # pyright: ignore[reportArgumentType]
        await server.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}}
        )
        api = await connect_api(server.kubeconfig(directory / "kubeconfig", token="manager"), qps=0, burst=1)
        try:
            async with webhook_world(
                directory / "certificates", *flags, api=api, writer="secret", certificate=False
            ) as world:
                server.webhooks.services[SERVICE] = ("127.0.0.1", world.webhooks.server.port)
                yield server, world
                assert server.refused == []
                await server.webhooks.close()  # its idle connections would be waited for
        finally:
            await api.close()


async def mirrored(world: WebhookWorld, kind: str, name: str) -> None:
    """Waits until an object is in the manager's fold."""

    async def seen() -> bool:
        return (await world.plain.get(f"/v1/objects/{kind}/{name}")).status_code == 200

    await until(seen)


async def until_watched(server: ApiServer) -> None:
    async def seen() -> bool:
        kept = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "secrets")
        return all(server.watching[plural] for plural in kept)

    await until(seen)


def broken(secret: Json) -> Json:
    """The secret with a key that is none."""
    return {**secret, "data": {**secret["data"], "key.pem": "bm8ga2V5"}}


def webhooks_of(server: ApiServer, plural: str, name: str) -> list[Json]:
    stored = server.object(plural, "", name)
    assert stored is not None
    return copy.deepcopy(stored["webhooks"])


async def test_what_is_installed_is_completed_and_kept(tmp_path: Path) -> None:
    async with behind_api_server(tmp_path) as (server, world):
        secret = server.object("secrets", NAMES.namespace, NAMES.secret)
        assert secret is not None
        assert {"ca-key.pem", "ca-cert.pem", "key.pem", "cert.pem", "tls.key", "tls.crt"} <= set(secret["data"])
        entries = webhooks_of(server, "mutatingwebhookconfigurations", NAMES.mutating)
        # ReservationMutatingWebhook is off here: its entry is dropped from what the user installed
        assert [entry["name"].partition(".")[0] for entry in entries] == [
            "mpod-create",
            "mpod-create-others",
            "mpod-update",
            "melasticquota",
        ]
        assert {entry["clientConfig"]["caBundle"] for entry in entries} == {secret["data"]["ca-cert.pem"]}

        installed = copy.deepcopy(server.object("mutatingwebhookconfigurations", "", NAMES.mutating))
        assert installed is not None
        kept = json.loads(installed["metadata"]["annotations"][TEMPLATE_ANNOTATION])
        assert len(kept) == 5
        installed["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(b"somebody's").decode()
        await until_watched(server)
        await server.apply(installed)

        async def kept_again() -> bool:
            return webhooks_of(server, "mutatingwebhookconfigurations", NAMES.mutating) == entries

        await until(kept_again)
        await server.apply(broken(secret))
        made = world.webhooks.keeper.bundle

        async def made_again() -> bool:
            return world.webhooks.keeper.bundle != made

        await until(made_again)


async def test_two_replicas_end_with_the_same_certificate(tmp_path: Path) -> None:
    async with behind_api_server(tmp_path) as (server, first):
        api = await connect_api(server.kubeconfig(tmp_path / "kubeconfig"), qps=0, burst=1)
        async with webhook_world(tmp_path / "b", api=api, writer="secret", certificate=False) as second:
            assert first.webhooks.keeper.bundle == second.webhooks.keeper.bundle
            # gone with a broken one: both come to the one that replaces it
            secret = server.object("secrets", NAMES.namespace, NAMES.secret)
            assert secret is not None
            await server.apply(broken(secret))
            await asyncio.gather(first.webhooks.keeper.keep(), second.webhooks.keeper.keep())
            await asyncio.gather(first.webhooks.keeper.keep(), second.webhooks.keeper.keep())

            assert first.webhooks.keeper.bundle == second.webhooks.keeper.bundle
        await api.close()


class NotLeading(AlwaysLeading):
    """A candidate that knows of nobody who leads."""

    def __init__(self) -> None:
        super().__init__(leads=False)
        self.holder = None

    async def acquired(self) -> Term:
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async def campaign(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.deep
async def test_a_replica_is_ready_whoever_leads_once_the_log_has_seen_the_cluster(tmp_path: Path) -> None:
    bus = memory_bus()
    async with behind_api_server(tmp_path) as (server, _):
        api = await connect_api(server.kubeconfig(tmp_path / "kubeconfig"), qps=0, burst=1)
        async with webhook_world(
            tmp_path / "b", api=api, bus=bus, leadership=NotLeading(), writer="secret", certificate=False
        ) as replica:

            async def says(text: str) -> bool:
                return text in (await replica.plain.get("/readyz")).text

            await until(lambda: says("nothing has been mirrored yet"))
            async with webhook_world(tmp_path / "c", api=api, bus=bus, writer="secret", certificate=False):
                await until(lambda: says("ok"))
            assert await says("ok")
        await api.close()


async def test_pods_are_mutated_and_judged_on_their_way_in(tmp_path: Path) -> None:
    async with behind_api_server(tmp_path) as (server, world):
        await server.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "batch"},
                "value": 5500,
            }
        )
        profile = {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": "p"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"team": "a"}},
                "selector": {"matchLabels": {"class": "batch"}},
                "qosClass": "BE",
                "priorityClassName": "batch",
            },
        }
        await server.apply(profile)
        await mirrored(world, "clustercolocationprofiles", "p")
        await mirrored(world, "namespaces", "default")
        await mirrored(world, "priorityclasses", "batch")

        stored = await server.apply(pod("a", **{"class": "batch"}))
        assert stored["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
        assert stored["spec"]["priority"] == 5500
        limits = stored["spec"]["containers"][0]["resources"]["limits"]
        assert limits["kubernetes.io/batch-memory"] == "1Gi"

        with pytest.raises(ApiError, match="priorityClass= cannot be used in combination"):
            await server.apply(pod("b", **{"koordinator.sh/qosClass": "BE"}))
        assert server.object("pods", "default", "b") is None


async def test_a_quota_lets_in_what_it_has_room_for_and_no_more(tmp_path: Path) -> None:
    gates = "--feature-gates=EnableQuotaAdmission=true"
    async with behind_api_server(tmp_path, gates, "--quota-update-max-retries=10") as (server, world):
        quota = {
            "apiVersion": QUOTA,
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"max": {"cpu": "3"}, "min": {"cpu": "1"}},
        }
        await server.apply(quota)
        await mirrored(world, "elasticquotas", "team")
        label = {"quota.scheduling.koordinator.sh/name": "team"}

        outcomes = await asyncio.gather(
            *(server.apply(pod(f"p{number}", **label)) for number in range(6)), return_exceptions=True
        )

        refused = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
        assert len(refused) == 3
        assert all("exceeded quota: default/team, requested: cpu=1, used: cpu=3" in str(error) for error in refused)
        stored = server.object("elasticquotas", "default", "team")
        assert stored is not None
        account = stored["metadata"]["annotations"]["quota.scheduling.koordinator.sh/child-request"]
        assert json.loads(account) == {"cpu": "3"}
