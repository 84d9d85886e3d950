"""The manifests under k8s/: complete, least rights, and just enough of them for a manager that does everything."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_agent.flags import CONTAINER_PATHS
from koord_agent.shell.host.resctrl_mount import WORD
from koord_criproxy.installer.bundle import installed_unit
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.settings import DeschedulerSettings
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.webhooks import served
from koord_manager.settings import LEASE_NAME, ManagerSettings, mirrored_configs
from koord_scheduler.settings import SchedulerSettings
from koordcore.bus.setup.manifest import INSTALLED
from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.nodepolicy import NodeSloRendered
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.protocol.storage import SELECTED_NODE
from koordcore.runtime_api.proxy_facts import HOST_SOCKET
from koordcore.service.settings import ServiceSettings
from koordcore.state.aggregates import EvictionState
from koordcore.values.allocation import Allocation, ClaimBinding
from koordctl.descheduling.configuration import descheduler_configuration
from support.koord_command import KoordCommand
from support.kubernetes.authorization import manager_user
from support.kubernetes.gateway_world import World, gateway_world, node, pod
from support.kubernetes.volumes import claim, local_volume, storage_class, user_of

ROOT = Path(__file__).parents[2]
BASE = ROOT / "k8s" / "base"
DEV_POSTGRES = ROOT / "k8s" / "overlays" / "dev" / "postgres.yaml"
SERVICES = ("manager", "scheduler", "descheduler")

Json = dict[str, Any]


def documents(file: str) -> list[Json]:
    return [item for item in yaml.safe_load_all((BASE / file).read_text(encoding="utf-8")) if item]


def test_every_manifest_is_listed_and_every_definition_is_installed() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    definitions = yaml.safe_load((ROOT / "schemas" / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]

    assert set(listed) == {*files, "../../schemas"}
    assert definitions == [f"crds/{name}" for name in definition_texts()]


@pytest.mark.parametrize("file", ["manager-role.yaml", "manager-namespace-role.yaml", "scales-role.yaml"])
def test_rights_name_every_verb_and_resource(file: str) -> None:
    for rule in (rule for role in documents(file) for rule in role.get("rules", ())):
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_the_role_of_scales_collects_what_bears_its_label_and_shows_numbers_only() -> None:
    whole, *parts = documents("scales-role.yaml")
    (selector,) = whole["aggregationRule"]["clusterRoleSelectors"]

    assert "rules" not in whole, "applying it again would take the collected rules away for a moment"
    for part in parts:
        assert part["metadata"]["labels"] == selector["matchLabels"]
        for rule in part["rules"]:
            assert rule["verbs"] == ["get"]
            assert all(name.endswith("/scale") for name in rule["resources"])


def test_secrets_are_only_those_of_the_own_namespace() -> None:
    assert all("secrets" not in rule["resources"] for rule in documents("manager-role.yaml")[0]["rules"])


def test_the_lease_that_is_allowed_is_the_one_that_is_used() -> None:
    rules = documents("manager-namespace-role.yaml")[0]["rules"]
    names = [name for rule in rules if "leases" in rule["resources"] for name in rule.get("resourceNames", [])]

    assert names == [LEASE_NAME]


def test_each_config_map_that_the_gateway_reads_is_allowed() -> None:
    user = manager_user()
    missing = [
        (verb, name)
        for namespace, name in mirrored_configs(ManagerSettings.load([], {}))
        for verb in ("get", "list", "watch")
        if not user.may(verb, "", "configmaps", namespace, name)
    ]

    assert missing == []


def test_every_nats_server_collects_garbage_before_it_reaches_its_limit_of_memory() -> None:
    (stateful,) = (item for item in documents("nats.yaml") if item["kind"] == "StatefulSet")
    (job,) = (item for item in documents("nightly.yaml") if item["kind"] == "CronJob")
    pods = (stateful["spec"]["template"]["spec"], job["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    containers = [each for pod in pods for each in (*pod["containers"], *pod.get("initContainers", ()))]
    servers = [each for each in containers if each["image"].startswith("nats:")]
    limits = {
        f"pod {each['name']}": (each["resources"]["limits"]["memory"], {e["name"]: e.get("value") for e in each["env"]})
        for each in servers
    }
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    limits |= {
        name: (each["mem_limit"].replace("g", "Gi"), each["environment"])
        for name, each in compose.items()
        if name in ("nats", "nats-2", "nats-3")
    }

    assert sorted(limits) == ["nats", "nats-2", "nats-3", "pod drill-server", "pod nats"]
    for limit, environment in limits.values():
        most = int(limit.removesuffix("Gi")) * 1024
        assert 0.75 * most <= int(environment["GOMEMLIMIT"].removesuffix("MiB")) <= 0.85 * most


@pytest.mark.deep
def test_each_step_of_the_nightly_job_is_a_command_and_has_one_key() -> None:
    (job,) = (item for item in documents("nightly.yaml") if item["kind"] == "CronJob")
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    secrets = {item["name"]: item["secret"]["secretName"] for item in spec["volumes"] if "secret" in item}
    users = {f"koord-{manifest.name}" for manifest in INSTALLED}
    keys: dict[str, list[str]] = {}
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        keys[container["name"]] = [secrets[name] for name in mounted if name in secrets]
    used = ["verify --replicas", "backup", "drill --server", "bus archive", "verify"]

    assert set(secrets.values()) <= users
    assert keys == {
        "drill-server": [],
        "compare-copies": ["koord-auditor"],
        "backup": ["koord-backup"],
        "drill": [],
        "archive": ["koord-retention"],
        "verify": ["koord-operator"],
    }
    for command in used:
        words = command.split()
        said = KoordCommand(Path()).run(*(word for word in words if not word.startswith("--")), "--help")
        assert all(word in said for word in words if word.startswith("--"))


@pytest.mark.parametrize("file", ["manager.yaml", "scheduler.yaml", "descheduler.yaml"])
def test_services_run_without_root_and_without_a_writable_root(file: str) -> None:
    spec = documents(file)[0]["spec"]["template"]["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("manager.yaml", ManagerSettings),
        ("scheduler.yaml", SchedulerSettings),
        ("descheduler.yaml", DeschedulerSettings),
    ],
)
def test_the_flags_of_the_manifests_exist(file: str, settings: type[ServiceSettings]) -> None:
    container = documents(file)[0]["spec"]["template"]["spec"]["containers"][0]

    settings.load(container["args"], {})


def workloads() -> dict[str, Json]:
    """Return name -> pod of every workload, those of the nodes and the Postgres of the overlay `dev` included."""
    files = [*BASE.glob("*.yaml"), *(ROOT / "k8s" / "nodes").glob("*.yaml"), DEV_POSTGRES]
    found = [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8")) if item]
    kinds = ("Deployment", "StatefulSet", "DaemonSet")
    return {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in found if item["kind"] in kinds}


def has_ports(spec: Json) -> bool:
    """Whether the first container of a pod has open ports."""
    return "ports" in spec["containers"][0]


def test_every_open_port_has_tls() -> None:
    """The ports of NATS and of the webhooks have tests of their own."""
    pods = workloads()
    serving = {name: spec for name, spec in pods.items() if name not in ("nats", "postgres") and has_ports(spec)}
    for name, spec in serving.items():
        (container,) = spec["containers"]
        secrets = {each["name"] for each in spec["volumes"] if "secret" in each}
        places = {each["mountPath"] for each in container["volumeMounts"] if each["name"] in secrets}
        flags = dict(flag.partition("=")[::2] for flag in container["args"])
        assert not {"--address", "--port"} & flags.keys(), f"{name}: a configuration file would come before them"
        assert {Path(flags[f"--http-{part}-file"]).parent.as_posix() for part in ("cert", "key")} <= places, name
        probes = [container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert {probe["scheme"] for probe in probes} == {"HTTPS"}, name
    assert set(serving) >= {
        f"koord-{name}" for name in (*SERVICES, "projector", "agent", "devicediscovery", "criproxy")
    }
    projector = {each["name"]: each.get("value") for each in pods["koord-projector"]["containers"][0]["env"]}
    assert projector["PGSSLMODE"] == "verify-full"
    assert {port["name"] for port in pods["nats"]["containers"][0]["ports"]} == {"client", "route"}


def test_koord_reaches_the_objects_of_the_manager_by_the_port_that_the_guide_forwards() -> None:
    """The ports of Koordinator have metrics and health only. The own port is open on the pod's loopback."""
    (arguments,) = (item["spec"]["template"]["spec"]["containers"][0]["args"] for item in documents("manager.yaml"))
    assert "--http-port=8081" in arguments
    assert not any(each.startswith("--http-host") for each in arguments)
    for page in ("try-a-cluster.md", "zh/try-a-cluster.md"):
        text = (ROOT / "docs" / "guide" / page).read_text(encoding="utf-8")
        assert "port-forward deployment/koord-manager 8081 " in text


def test_what_serves_with_the_certificate_of_agents_answers_public_routes_only() -> None:
    """Without an access file, a server that is open to others answers no other route (`test_gate`)."""
    pods = workloads()
    sharing = {
        name: spec["containers"][0]
        for name, spec in pods.items()
        if any(each.get("secret", {}).get("secretName") == "koord-agent" for each in spec["volumes"])
    }
    assert sharing.keys() >= {"koord-agent", "koord-devicediscovery", "koord-criproxy"}
    for name, container in sharing.items():
        words = [*container.get("args", ()), *(each["name"] for each in container.get("env", ()))]
        assert not [word for word in words if "access" in word.lower()], name


def test_the_agent_has_no_capability_and_writes_nothing_of_its_node_but_what_is_listed() -> None:
    """`tests/runtime/test_agent_rights.py` shows that this suffices."""
    agent = workloads()["koord-agent"]
    (container,) = agent["containers"]
    folders = {each["name"]: each["hostPath"]["path"] for each in agent["volumes"] if "hostPath" in each}
    mounts = [(folders[each["name"]], each) for each in container["volumeMounts"] if each["name"] in folders]

    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": "spc_t"},
    }
    assert {path for path, mount in mounts if not mount.get("readOnly")} == {
        "/sys/fs/cgroup",
        "/var/lib/koordlet",
        "/var/run/koordlet",
        "/var/log/koordlet",
        "/etc/runtime/hookserver.d",
    }
    assert {path for path, mount in mounts if mount.get("readOnly")} == {
        *(f"/sys/{name}" for name in ("devices", "bus", "class", "kernel/mm", "fs")),
        *("/var/run/nri", "/run/containerd", "/run/crio"),
        "/var/lib/kubelet",
    }
    assert not [path for path, mount in mounts if mount.get("mountPropagation") == "Bidirectional"]
    (hidden,) = (each for each in container["volumeMounts"] if each["mountPath"] == "/var/lib/kubelet/pods")
    assert hidden["name"] not in folders, "the Secrets of the pods are below the kubelet's folder"


def test_no_writer_of_units_can_be_entered_by_the_agent() -> None:
    """The agent is root without a capability, and the kernel lets it enter processes of root that have none."""
    for name in ("koord-criproxy", "koord-criproxy-removal"):
        (container,) = workloads()[name]["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, name


def test_the_only_privileged_step_of_an_agent_mounts_resctrl_and_ends() -> None:
    agent = workloads()["koord-agent"]
    (step,) = agent["initContainers"]

    assert step["command"] == ["koord-agent", WORD]
    assert step["securityContext"] == {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True}
    assert [mount["mountPath"] for mount in step["volumeMounts"]] == [CONTAINER_PATHS["sys_fs_root"]]


def test_the_agent_of_compose_writes_resctrl_if_the_operator_says_so() -> None:
    """Since Docker 25, a read-only mount makes the mounts below it read-only, too."""
    compose: Json = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["agent-host"]

    assert f"/sys/fs:{CONTAINER_PATHS['sys_fs_root']}:${{KOORD_SYS_FS:-ro}}" in compose["volumes"]


def test_the_component_for_gates_adds_the_capabilities_that_the_documentation_gives_reasons_for() -> None:
    text = (ROOT / "k8s" / "agent-gates" / "kustomization.yaml").read_text(encoding="utf-8")
    (patch,) = yaml.safe_load(text)["patches"]
    spec = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    folders = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    mounted = {each["mountPath"]: folders.get(each["name"]) for each in container["volumeMounts"]}
    page = (ROOT / "docs" / "node-agent.md").read_text(encoding="utf-8")

    assert "privileged" not in container["securityContext"]
    for capability in container["securityContext"]["capabilities"]["add"]:
        assert f"`{capability}`" in page, capability
    assert mounted[CONTAINER_PATHS["terway_qos_dir"]] == "/var/lib/terway/qos"


def test_nothing_of_k8s_mounts_the_root_of_its_node_writable() -> None:
    for name, spec in workloads().items():
        roots = {each["name"] for each in spec["volumes"] if each.get("hostPath", {}).get("path") == "/"}
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            writable = [m for m in container.get("volumeMounts", ()) if m["name"] in roots and not m.get("readOnly")]
            assert writable == [], name


def test_the_facts_of_the_cri_proxy_go_to_the_socket_of_the_agent() -> None:
    agent = workloads()["koord-agent"]
    (container,) = agent["containers"]
    folders = {each["name"]: each["hostPath"]["path"] for each in agent["volumes"] if "hostPath" in each}
    mounts = {each["mountPath"]: folders.get(each["name"]) for each in container["volumeMounts"]}
    unit = installed_unit("ExecStart=/usr/local/bin/koord-criproxy\n", folder=Path("/f"), runtime=Path("/r"), node="n")

    assert f"--criproxy-facts-socket={HOST_SOCKET}" in container["args"]
    assert mounts[str(HOST_SOCKET.parent)] == str(HOST_SOCKET.parent)
    assert f"Environment=KOORD_CRIPROXY_FACTS_SOCKET={HOST_SOCKET}\n" in unit
    assert "--proxy-facts" in workloads()["koord-issuer"]["containers"][0]["args"]


def test_postgres_gets_its_certificate_in_the_same_way_everywhere() -> None:
    compose: Json = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["postgres"]
    (container,) = workloads()["postgres"]["containers"]

    assert [*container["command"], *container["args"]] == compose["command"]


def test_only_the_manager_has_rights() -> None:
    bound = {subject["name"] for item in documents("rolebindings.yaml") for subject in item["subjects"]}

    assert bound == {"koord-manager"}
    for file in ("scheduler.yaml", "descheduler.yaml"):
        assert documents(file)[0]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_our_profile_of_the_descheduler_is_the_same_everywhere() -> None:
    (shipped,) = documents("descheduler-configuration.yaml")
    ours = load(shipped["data"]["descheduler.yaml"].encode(), BUILT_IN)

    assert ours == load((ROOT / "deploy" / "compose" / "descheduler.yaml").read_bytes(), BUILT_IN)
    assert ours == descheduler_configuration(None)
    assert [profile.prove for profile in ours.profiles] == [True]


def test_the_configuration_of_the_manifests_is_valid() -> None:
    assert read_config_map(None, documents("../configuration.yaml")[0]["data"]).rejections == ()


def test_the_webhook_objects_have_the_webhooks_of_the_default_gates() -> None:
    entries = {entry["name"]: entry for item in documents("webhooks.yaml") for entry in item["webhooks"]}

    assert set(entries) == {webhook.entry_name for webhook in served(Options())}
    for webhook in served(Options()):
        entry = entries[webhook.entry_name]
        assert entry["clientConfig"]["service"]["path"] == webhook.path
        assert entry["failurePolicy"] == webhook.failure_policy
        assert entry["rules"][0]["operations"] == list(webhook.operations)


async def test_the_rights_suffice_for_everything_that_the_gateway_does(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        server = world.server
        for text in definition_texts().values():
            await server.apply(yaml.safe_load(text))
        server.users["manager"] = manager_user()
        await world.begin(token="manager")
        await server.apply(node("node-1"))
        await server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.place(uid, "node-1")
        await world.until(lambda: world.node_of("a") == "node-1")
        await world.append(
            AggregateRef("nodepolicy", "node-1"),
            NodeSloRendered(spec={"resourceUsedThresholdWithBE": {"enable": True}}),
        )
        await world.until(lambda: server.object("nodeslos", "", "node-1"))
        for method in ("evict", "delete"):
            wanted = PodEvictionRequested(
                namespace="default", name="a", initiator="scheduler", method=method, reason="Preempted"
            )
            await world.append(AggregateRef("eviction", uid), wanted)
            await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))
        await world.until(lambda: server.objects("events", ""))
        await world.until(lambda: world.gateway.is_idle)
        await _bind_claims(world)

        assert server.refused == []


async def _bind_claims(world: World) -> None:
    """Place a pod with two claims: one gets a volume, and one is made."""
    server = world.server
    for document in (storage_class(), local_volume("disk", "node-1"), claim("data"), claim("log")):
        await server.apply(document)
    await server.apply(pod("b", **user_of("data", "log")))
    chosen = (
        ClaimBinding(namespace="default", claim="data", volume="disk"),
        ClaimBinding(namespace="default", claim="log"),
    )
    await world.place(await world.mirrored("b"), "node-1", Allocation(volume_claims=chosen))
    await world.until(lambda: (server.object("persistentvolumes", "", "disk") or {})["spec"].get("claimRef"))
    made = "persistentvolumeclaims", "default", "log"
    await world.until(lambda: SELECTED_NODE in (server.object(*made) or {})["metadata"].get("annotations", {}))
