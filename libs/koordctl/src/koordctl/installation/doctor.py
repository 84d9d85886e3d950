"""`koord doctor`: examine an installation for common problems, and name a remedy for each."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from koordctl.access.clients import (
    SERVICES,
    find_service,
    live_directory,
    named_instances,
    readiness_trouble,
    running_stack,
    silent_nodes,
)
from koordctl.access.log import LogTrouble, key_folder, mirror_info, open_log, wait_for
from koordctl.log import condition, health
from koordctl.log.health import Finding, Verdict
from koordctl.render.output import Format, console, show_document, show_table

if TYPE_CHECKING:
    from koordcore.embedded.stack import Stack

    from koordctl.access.log import OpenLog


REMEDY = "apply the definitions of this version: docs/guide/install-on-kubernetes.md"
OPTIONAL: Final = ("descheduler",)
LOG_FULL: Final = "koord_bus_append_full"


def definition_findings(
    installed: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Yield the findings about custom resource definitions: whether an API server has all that this version needs.

    One finding for each definition that is not installed (BROKEN), or that lacks versions, subresources or fields
    (WARNING). If there is none, a single finding OK. An API server drops fields that a definition does not name,
    without a word. What a newer definition has in addition is in order.
    """
    found = {each["metadata"]["name"]: each for each in installed}
    count = 0
    old = False
    for each in wanted:
        name, count = each["metadata"]["name"], count + 1
        if name not in found:
            old = True
            yield Finding(f"CRD {name}", Verdict.BROKEN, "is not installed", REMEDY)
        elif missing := list(_missing(found[name]["spec"], each["spec"])):
            old = True
            shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            yield Finding(f"CRD {name}", Verdict.WARNING, f"is of an older version: it lacks {shown}", REMEDY)
    if not old:
        yield Finding("CRDs", Verdict.OK, f"all {count} are of this version")


def _missing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """The versions, subresources and fields that a definition lacks."""
    versions = {each["name"]: each for each in found["versions"] if each["served"]}
    for each in wanted["versions"]:
        name = each["name"]
        if not each["served"]:
            continue
        if name not in versions:
            yield name
            continue
        for subresource in each.get("subresources", {}):
            if subresource not in versions[name].get("subresources", {}):
                yield f"{name} /{subresource}"
        yield from _missing_fields(_schema(versions[name]), _schema(each), name)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return version.get("schema", {}).get("openAPIV3Schema", {})


def _missing_fields(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    if found.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in wanted.get("properties", {}).items():
        if name not in found.get("properties", {}):
            yield f"{path}.{name}"
        else:
            yield from _missing_fields(found["properties"][name], schema, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if isinstance(wanted.get(part), Mapping):
            inner: Any = found.get(part)
            yield from _missing_fields({} if isinstance(inner, bool) else inner or {}, wanted[part], f"{path}[]")


def doctor(
    output: Annotated[Format, typer.Option("-o", "--output", help="table (for people), json or yaml.")] = Format.TABLE,
    problems: Annotated[bool, typer.Option("--problems", help="Show only problems.")] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig of an API server: examine NetworkPolicies, CRDs and the CronJob, too."),
    ] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the manager.")] = "koordinator-system",
) -> None:
    """Examine an installation for problems: services, reports, nightly job, log, streams, clocks, disk, keys.

    Of the log, some facts are read: lost, missing and unreadable facts are found. Nothing is changed. Each problem has
    a remedy. Exit status 1 if something is broken; warnings alone give 0.

    Examples:

      koord doctor

      koord doctor --problems

      koord doctor --kubeconfig ~/.kube/config
    """
    findings = [*_services(), *_nightly(), *wait_for(_log()), *wait_for(_mirror()), *_machine()]
    if kubeconfig is not None:
        findings += wait_for(_cluster(kubeconfig, context, namespace))
    shown = [each for each in findings if each.verdict is not health.Verdict.OK or not problems]
    if output is Format.TABLE:
        if _nothing_runs():
            console.print("nothing runs here: `koord up`")
        rows = [(each.verdict.value, each.check, each.told, each.remedy or None) for each in shown]
        show_table(("verdict", "check", "found", "remedy"), rows, empty="everything is in order")
        counts = {verdict: sum(each.verdict is verdict for each in findings) for verdict in health.Verdict}
        console.print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    else:
        show_document([each._asdict() for each in shown], output)
    if any(each.verdict is health.Verdict.BROKEN for each in findings):
        raise typer.Exit(1)


def _services() -> Iterator[health.Finding]:
    for name in SERVICES:
        url = find_service(name)
        yield health.service_finding(name, url, None if url is None else readiness_trouble(url), name in OPTIONAL)
        if url is not None:
            yield from _folds(name, url)
            yield from _storing(name, url)
        if url is not None and name == "projector":
            yield from _reports(url)


def _folds(service: str, url: str) -> Iterator[health.Finding]:
    from koordctl.access.clients import HALTED, LAG, fold_figures

    figures = fold_figures(url) or {}
    for fold, lag in sorted(figures.get(LAG, {}).items()):
        yield health.fold_finding(service, fold, lag, figures.get(HALTED, {}).get(fold, 0.0) > 0)


def _storing(service: str, url: str) -> Iterator[health.Finding]:
    """Nothing if the last append of the service was not refused for want of space."""
    from koordctl.access.clients import fold_figures

    full = (fold_figures(url, "stream") or {}).get(LOG_FULL, {})
    if any(full.values()):
        yield condition.storing_finding(f"the log has refused the last facts of the {service}: it is full", None)


def _reports(url: str) -> Iterator[health.Finding]:
    """Nothing if the projector does not answer."""
    if (silent := silent_nodes(url)) is not None:
        yield health.report_finding(silent)


def _nightly() -> Iterator[health.Finding]:
    """Nothing if KOORD_NIGHTLY names no address."""
    from koordctl.access.clients import fold_figures

    if url := find_service("nightly"):
        yield from health.nightly_findings(fold_figures(url, "check"), time.time())


def _nothing_runs() -> bool:
    return not (os.environ.get("KOORD_NATS") or named_instances() or running_stack(live_directory()))


async def _log() -> list[health.Finding]:
    if _nothing_runs():
        remedy = "start it, or name its address: KOORD_NATS=nats://host:port"
        return [health.Finding("log", health.Verdict.BROKEN, "no address is known", remedy)]
    try:
        async with open_log() as log:
            return await _examined(log)
    except LogTrouble as error:
        return [
            health.Finding("log", health.Verdict.BROKEN, str(error), "start NATS; KOORD_NATS, KOORD_NATS_SEED name it")
        ]


async def _examined(log: OpenLog) -> list[health.Finding]:
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.read.stream_reader import ApiError, stream_info
    from koordcore.bus.setup.streams import streams

    from koordctl.log.examining import log_findings

    names = log.names
    findings = [health.Finding("log", health.Verdict.OK, f"nats-server {log.connection.server_version}")]
    evidence: list[str] = []
    for spec in streams(names, replicas=1):
        began = time.time()
        try:
            info = await stream_info(log.connection, spec.name)
            if info is not None and spec.name == names.explanations:
                findings += await _refused(log)
        except (ApiError, NoAnswer) as error:  # the server that stores it is away
            remedy = "start the servers that store it: most of them must run"
            findings.append(health.Finding(f"stream {spec.name}", health.Verdict.BROKEN, str(error), remedy))
            continue
        if info is None and spec.holds_facts:
            findings.append(condition.gone_finding(spec.name, evidence))
            continue
        findings += health.stream_findings(spec, info)
        if info is not None and spec.proves_facts and info["state"]["last_seq"]:
            evidence.append(spec.name)
        if info is not None and spec.holds_facts:
            findings += [each async for each in log_findings(log, info)]
        if info is not None and spec.name == names.dlq:
            findings.append(health.dead_letter_finding(int(info["state"]["messages"])))
        if info is not None and spec.name == names.ev and info.get("ts"):
            here = datetime.fromtimestamp((began + time.time()) / 2, UTC)
            findings.append(health.clock_finding(datetime.fromisoformat(info["ts"]), here))
    return findings


async def _refused(log: OpenLog) -> list[health.Finding]:
    from koordcore.bus.read.stream_reader import subjects_of
    from koordcore.events import CATALOGUE
    from koordcore.events.envelope import AggregateRef, name_from_token
    from koordcore.events.refusals import NodeMessagesRefused

    prefix = f"{log.names.prefix('explanations')}node."
    told = await subjects_of(log.connection, log.names.explanations, f"{prefix}*")
    refs = [AggregateRef("node", subject.removeprefix(prefix)) for subject in sorted(told)]
    read = [(stored, CATALOGUE.read(stored)) for stored in await log.bus.explanations.latest(refs)]
    return list(
        health.refusal_findings(
            (name_from_token(stored.ref.id), stored.occurred_at, event)
            for stored, event in read
            if isinstance(event, NodeMessagesRefused)
        )
    )


async def _mirror() -> list[health.Finding]:
    found = await mirror_info()
    if found is None:
        return []
    return [health.mirror_finding(found if isinstance(found, str) else health.mirror_trouble(found))]


async def _cluster(kubeconfig: Path, context: str, namespace: str) -> list[health.Finding]:
    from koord_manager.cluster_commands import Unreachable, installed
    from koordcore.protocol.crd.catalogue import definition_texts
    from yaml import safe_load

    try:
        found = await installed(kubeconfig=kubeconfig, context=context, namespace=namespace)
    except Unreachable as error:
        remedy = "koord doctor --kubeconfig names the API server"
        return [health.Finding("API server", health.Verdict.BROKEN, str(error), remedy)]
    wanted = [safe_load(text) for text in definition_texts().values()]
    return [
        health.webhook_finding(found.policies),
        health.nightly_job_finding(found.schedules, found.jobs, time.time()),
        *definition_findings(found.definitions, wanted),
    ]


def _machine() -> Iterator[health.Finding]:
    """About the processes and the folder of an embedded stack; nothing without a stack."""
    from koordcore.embedded.nats import write_trouble

    folder = live_directory()
    stack: Stack | None = running_stack(folder)
    if stack is None:
        return
    for process in stack.as_seen().processes:
        yield from health.process_findings(process)
    free = shutil.disk_usage(folder).free
    yield health.disk_finding(str(folder), free)
    nats = stack.find("nats")
    if nats is not None and "monitor" in nats.urls:
        yield condition.storing_finding(write_trouble(nats.urls["monitor"]), free)
    yield health.key_finding(_open_files(key_folder(folder)))


def _open_files(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.seed")):
        if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            yield str(file)
