"""Vectors of the node agent: names and values of cgroup files, who may write them, what is written."""

from __future__ import annotations

from conformance.nulls import none_if
from conformance.registry import Json, adapter, disputed
from koord_agent.domain.kernel import cgroup_files
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver, HostApplication, detect_driver
from koord_agent.domain.kernel.cpu_weight import WeightLine
from koord_agent.domain.plans.arbiter import arbitrate
from koord_agent.domain.plans.executor import Update, plan_writes
from koord_agent.domain.plans.plan import Band, CgroupFile, Merge, Plan
from koordcore.protocol.qos import KubeQos

CGROUP_ROOT = "/sys/fs/cgroup"
unless_refused = none_if(ValueError, LookupError)


disputed(
    "agent.cgroup_path",
    "file v2 blkio.cost.weight",
    "reality, 4.15: block IO on cgroup v2 is io.max, io.weight and io.cost (test_block_io.py)",
)


@adapter("agent.cgroup_path", exact_text=("dir", "file", "pod_id", "container_id", "sandbox", "driver"))
def cgroup_path(given: dict[str, Json]) -> dict[str, Json]:
    """Names of cgroup directories and files, and back (agent spec, 3.1-3.4)."""
    layout = CgroupLayout(Driver(given.get("driver", "systemd")))
    match given["op"]:
        case "qos":
            return {"dir": layout.qos_directory(KubeQos(given["kube_qos"]))}
        case "pod":
            return {"dir": layout.pod_directory(KubeQos(given["kube_qos"]), given["pod_uid"])}
        case "container":
            qos, uid, identity = KubeQos(given["kube_qos"]), given["pod_uid"], given["container_id"]
            return {"dir": unless_refused(lambda: layout.container_directory(qos, uid, identity))}
        case "file":
            root, version = given.get("cgroup_root", CGROUP_ROOT), given["cgroup_version"]
            return {
                "file": unless_refused(lambda: cgroup_files.file_path(root, given["resource"], given["dir"], version))
            }
        case "parse_pod":
            return {"pod_id": layout.parse_pod(given["basename"])}
        case "parse_container":
            return {"container_id": layout.parse_container(given["basename"])}
        case "host_app":
            return {"dir": unless_refused(lambda: layout.host_application_directory(host_application(given["app"])))}
        case "sandbox":
            return {"sandbox": unless_refused(lambda: layout.sandbox(given["container_ids"], given["dirs"]))}
        case "driver":
            return {"driver": detect_driver(given["dirs"], given.get("kubelet_args"), given.get("kubelet_config"))}
        case other:
            raise AssertionError(f"no such op: {other}")


def host_application(app: dict[str, Json]) -> HostApplication:
    path: Json = app.get("cgroupPath")
    parts: dict[str, Json] = path or {}
    return HostApplication(
        name=app["name"],
        qos=app.get("qos", ""),
        priority=app.get("priority", ""),
        base=None if path is None else path.get("base", ""),
        parent_dir=parts.get("parentDir", ""),
        relative_path=parts.get("relativePath", ""),
    )


@adapter("agent.cgroup_v2_convert")
def cgroup_v2_convert(given: dict[str, Json]) -> dict[str, Json]:
    """Values between v1 and v2, helper conversions, validity, equality (agent spec, 3.4)."""
    match given["op"]:
        case "write":
            # the vectors have the weights of old runtimes; test_cpu_weight.py has those of new ones
            name, version = given["resource"], given.get("cgroup_version", 2)
            return {
                "file": unless_refused(lambda: cgroup_files.resource(name).file(version)),
                "value": unless_refused(
                    lambda: cgroup_files.to_file_text(name, given["value"], version, WeightLine.LINEAR)
                ),
            }
        case "read":
            text = unless_refused(
                lambda: cgroup_files.from_file_text(given["resource"], given["content"], given["cgroup_version"])
            )
            number = cgroup_files.parse_number(text) if text is not None else None
            return {"value": text if number is None else number}
        case "milli_to_shares":
            return {"shares": cgroup_files.milli_to_shares(given["milli_cpu"])}
        case "milli_to_quota":
            return {"quota_us": cgroup_files.milli_to_quota_us(given["milli_cpu"])}
        case "validate":
            refused = unless_refused(lambda: cgroup_files.validate(given["resource"], given["value"]) or True)
            return {"valid": refused is not None}
        case "equal":
            equal = cgroup_files.is_equal(
                given["resource"], given["current"], given["value"], given.get("cgroup_version", 1)
            )
            return {"equal": equal}
        case other:
            raise AssertionError(f"no such op: {other}")


disputed(
    "agent.executor_merge",
    "fresh cache entry suppresses the update",
    "the kubelet and systemd write the same files, so a value is compared with what its file reads in this cycle"
    ": q/memory.min reads 0 and gets 10; test_a_value_that_another_writer_took_back_is_written_again",
)


@adapter("agent.executor_merge", exact_text=("writes",))
def executor_merge(given: dict[str, Json]) -> dict[str, Json]:
    """Leveled updates -> ordered writes and the files afterwards (agent spec, 9)."""
    files = {_cgroup_file(path): text for path, text in given["files"].items()}
    levels = [
        [
            Update(file=_cgroup_file(item["file"]), value=item["value"], merge=Merge(item.get("merge", "none")))
            for item in level
        ]
        for level in given["levels"]
    ]
    plan = plan_writes(levels, files)
    afterwards = {file.key: text for file, text in files.items()}
    for write in plan.writes:
        afterwards[write.update.file.key] = write.value
    return {"writes": [[write.update.file.key, write.value] for write in plan.writes], "files": afterwards}


def _cgroup_file(path: str) -> CgroupFile:
    directory, _, resource = path.rpartition("/")
    return CgroupFile(directory, resource)


@adapter("agent.arbitration", exact_text=("value", "plugins", "dropped"), whole=("result",))
def arbitration(given: dict[str, Json]) -> dict[str, Json]:
    """Plans of several plug-ins -> one value per knob, and the plans that lost (agent spec, 10.2)."""
    now_ms = 1_000_000_000
    plans = [
        Plan(
            plugin=item["plugin"],
            band=Band[item["band"].upper()],
            file=_knob(item["file"], item["value"]),
            value=item["value"],
            created_ms=now_ms - round(item["age_seconds"] * 1000),
            ttl_ms=round(item["ttl_seconds"] * 1000),
        )
        for item in given["plans"]
    ]
    current: dict[str, Json] = given.get("current") or {}
    done = arbitrate(plans, now_ms, {_cgroup_file(path): text for path, text in current.items()})
    return {
        "result": {
            file.key: {"value": winner.value, "plugins": list(winner.plugins)} for file, winner in done.winners.items()
        },
        "dropped": sorted([loser.plan.plugin, loser.plan.file.key, loser.loss.value] for loser in done.losers),
    }


def _knob(path: str, value: str) -> CgroupFile:
    """The knob that a value for a file belongs to: block-IO files have one per device."""
    file = _cgroup_file(path)
    device = value.split(" ", 1)[0] if file.resource.startswith("blkio.") else ""
    return CgroupFile(file.directory, file.resource, device)
