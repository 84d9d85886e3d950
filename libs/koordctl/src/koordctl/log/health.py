"""Findings of `koord doctor`: each has a verdict, a sentence about the installation, and a remedy. Pure functions."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from koordcore.bus.setup.bootstrap import compare
from koordcore.bus.setup.mirror import silent_seconds
from koordcore.bus.setup.streams import StreamSpec
from koordcore.embedded.nats import RESTART_FREE_BYTES
from koordcore.embedded.stack import ProcessState, ProcessStatus
from koordcore.events.refusals import NodeMessagesRefused
from koordcore.protocol import keys
from koordcore.protocol.objects import LabelSelector
from koordcore.protocol.selectors import is_matching
from koordcore.values import codec

MIB: Final = 1 << 20
GIB: Final = 1 << 30
MOST_SKEW_SECONDS: Final = 1.0
"""Difference of two clocks from which leases and ages of reports become wrong."""
MOST_LAG_EVENTS: Final = 10_000
MOST_NAMED_NODES: Final = 5
FULL: Final = 0.7
"""Share of its largest size from which a stream needs attention."""
LEAST_FREE: Final = 5 * GIB
DISK_FULL: Final = "free space: docs/runbook.md, 'The disk is full'"
RUNBOOK: Final = (
    "runbook.md, 'The log went back'",
    "runbook.md, 'The log has lost facts'",
    "runbook.md, 'The log cannot be read'",
)
"""Sections that a service names when it is not ready."""
NIGHTLY_RUN: Final = "koord_nightly_last_run_timestamp_seconds"
NIGHTLY_SUCCESS: Final = "koord_nightly_last_success_timestamp_seconds"
NIGHTLY_REMEDY: Final = "docs/runbook.md, 'The nightly job failed'"
MOST_SILENT_SECONDS: Final = 60.0
HOUR: Final = 3600
MOST_NIGHTLY_HOURS: Final = 26
NIGHTLY_JOB: Final = "koord-nightly"
MOST_NIGHTLY_JOB_HOURS: Final = 36
"""A job may take hours, and its success is the time of its end. The alert `KoordNightlyMissing` has the same limit."""
MANAGER_LABELS: Final = {keys.COMPONENT: "koord-manager"}
WEBHOOK_PORT: Final = 9876
"""Port of the manager's webhooks, named `webhook` in its pods."""
NO_LEADER: Final = "no leader"
_ANY_ADDRESS: Final = ("0.0.0.0/0", "::/0")


class Verdict(StrEnum):
    """WARNING: works, but may fail later."""

    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


class Finding(NamedTuple):
    check: str  # What was checked, for example "stream KOORD_EV_dev"
    verdict: Verdict  # Severity of the result
    told: str  # Sentence about the result
    remedy: str = ""  # Sentence about what the user can do; empty if nothing has to be done


def service_finding(name: str, url: str | None, ready: str | None, is_optional: bool) -> Finding:
    """BROKEN: the service is not ready, does not answer, or has no known address.

    Args:
        url: None if no address is known.
        ready: Reason why the service is not ready; empty if it is ready, None if it does not answer.
        is_optional: Whether an installation may lack the service. Then a missing address is OK.
    """
    check = f"service {name}"
    if url is None:
        if is_optional:
            return Finding(check, Verdict.OK, "not started (optional)")
        remedy = f"start it, or name its address: KOORD_{name.upper()}=http://host:port"
        return Finding(check, Verdict.BROKEN, "no address is known", remedy)
    if ready is None:
        return Finding(
            check,
            Verdict.BROKEN,
            f"{url} does not answer",
            "see its output: koord status, docker compose logs or kubectl logs",
        )
    if ready:
        remedy = next((each for each in RUNBOOK if each in ready), "")
        remedy = f"docs/{remedy}" if remedy else "koord bus consumers shows how far it is"
        return Finding(check, Verdict.BROKEN, f"is not ready: {ready}", remedy)
    return Finding(check, Verdict.OK, "is ready")


def fold_finding(service: str, fold: str, lag: float, is_halted: bool) -> Finding:
    """BROKEN: the fold has halted before an event that it cannot decode. WARNING: it is far behind the log.

    Args:
        lag: Number of events that the service has not folded yet.
    """
    check = f"fold {fold} of {service}"
    if is_halted:
        remedy = "docs/runbook.md, 'A fold has halted': upgrade the service, or koord bus skip"
        return Finding(check, Verdict.BROKEN, "has halted before an event", remedy)
    if lag > MOST_LAG_EVENTS:
        return Finding(check, Verdict.WARNING, f"is {lag:,.0f} events behind", "give the service more CPU")
    return Finding(check, Verdict.OK, f"is {lag:,.0f} events behind")


def report_finding(silent: Mapping[str, int]) -> Finding:
    """WARNING: the newest usage reports of some nodes are too old. `silent`: these nodes -> age in seconds."""
    if not silent:
        return Finding("usage reports", Verdict.OK, "no node has stopped reporting")
    named = ", ".join(f"{name} for {silent[name] / 60:,.0f} min" for name in sorted(silent)[:MOST_NAMED_NODES])
    more = f" and {len(silent) - MOST_NAMED_NODES:,} more" if len(silent) > MOST_NAMED_NODES else ""
    remedy = "start the agents of these nodes, or delete the nodes that are gone"
    return Finding("usage reports", Verdict.WARNING, f"no report of {named}{more}", remedy)


def refusal_findings(refused: Iterable[tuple[str, str, NodeMessagesRefused]]) -> Iterator[Finding]:
    """WARNING for each node whose messages the services did not take in the last 7 days; a single OK if there is none.
    `refused`: name of the node, time, and what the manager told last.
    """
    remedy = "docs/runbook.md, 'A node sends what nobody takes'"
    none = True
    for node, at, event in refused:
        none = False
        counts = " and ".join(f"{count:,} {what}" for what, count in sorted(event.counts.items()))
        where = f" at position {event.position}" if event.position else ""
        told = f"node {node} sent {counts}, the last{where}: {event.reason} ({at})"
        yield Finding(f"messages of {node}", Verdict.WARNING, told, remedy)
    if none:
        yield Finding("messages of nodes", Verdict.OK, "all were taken")


def clock_finding(server: datetime, here: datetime) -> Finding:
    """WARNING: the log's server and this machine differ by over 1 s.

    Args:
        server: Time of the server when it answered.
        here: Time of this machine at the middle of the request.
    """
    skew = (server - here).total_seconds()
    told = f"the server of the log is {abs(skew):.3f} s {'ahead of' if skew >= 0 else 'behind'} this machine"
    if abs(skew) > MOST_SKEW_SECONDS:
        return Finding("clocks", Verdict.WARNING, told, "synchronise both clocks (chrony, systemd-timesyncd)")
    return Finding("clocks", Verdict.OK, told)


def stream_findings(spec: StreamSpec, info: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Whether a stream exists, has the expected settings, and has room.

    Args:
        spec: Expected settings. The number of replicas and the largest size are not compared.
        info: Answer of the NATS server about the stream; None if it does not exist.
    """
    check = f"stream {spec.name}"
    if info is None:
        yield Finding(check, Verdict.BROKEN, "does not exist", "koord bus bootstrap")
        return
    found, state = info["config"], info["state"]
    wanted = {**spec.config(), "num_replicas": found["num_replicas"], "max_bytes": found["max_bytes"]}
    differences = compare(found, wanted)
    if differences:
        told = "; ".join(f"{name} is {has!r}, not {want!r}" for name, (has, want) in differences.items())
        yield Finding(check, Verdict.WARNING, told, "koord bus bootstrap changes what loses no data")
    if behind := replicas_behind(info):
        remedy = "start the server and wait for it; stop no other one meanwhile"
        verdict = Verdict.WARNING
        if NO_LEADER in behind:
            verdict = Verdict.BROKEN
            remedy = "most of its servers must run, with free space on their disks: docs/runbook.md, 'The disk is full'"
        yield Finding(check, verdict, ", ".join(behind), remedy)
    used, most = int(state["bytes"]), int(found["max_bytes"])
    told = f"{state['messages']:,} messages, {used / MIB:.1f} of {most / MIB:.0f} MiB"
    is_full = most > 0 and used > FULL * most
    if is_full and spec.discard == "new":
        yield Finding(check, Verdict.BROKEN, told, "a full stream refuses writes: koord bus bootstrap --log-size")
    else:
        yield Finding(check, Verdict.OK, told)


def replicas_behind(info: Mapping[str, Any]) -> list[str]:
    """Servers that have not all messages of a stream, each with the reason; "no leader" if it has none.

    Args:
        info: Answer of the leader about the stream.
    """
    servers: Mapping[str, Any] = info.get("cluster") or {"leader": "the only server"}
    behind = [
        f"{each['name']} is offline" if each.get("offline") else f"{each['name']} is {each.get('lag', 0)} behind"
        for each in servers.get("replicas") or ()
        if not each["current"]
    ]
    return behind if servers.get("leader") else [NO_LEADER, *behind]


def mirror_trouble(info: Mapping[str, Any]) -> str:
    """What is wrong with a mirror of the stream of facts, by its server's answer; "" if it follows."""
    if "mirror" not in info:
        return "is no mirror: it was promoted"
    lag, silent = info["mirror"]["lag"], silent_seconds(info["mirror"])
    if silent is None or silent > MOST_SILENT_SECONDS:
        return f"does not hear of the first servers; it has the facts up to {info['state']['last_seq']}"
    return f"is {lag} facts behind" if lag else ""


def mirror_finding(trouble: str) -> Finding:
    if trouble:
        return Finding("mirror", Verdict.WARNING, trouble, "docs/backup.md, 'A mirror on a second server'")
    return Finding("mirror", Verdict.OK, "follows")


def dead_letter_finding(parked: int) -> Finding:
    """WARNING: `parked` work items failed and wait for an operator."""
    if parked:
        return Finding("dead letters", Verdict.WARNING, f"{parked} items wait for a person", "koord bus dlq list")
    return Finding("dead letters", Verdict.OK, "none")


def nightly_findings(figures: Mapping[str, Mapping[str, float]] | None, now: float) -> Iterator[Finding]:
    """Whether each check of `koord nightly` succeeds, and has lately.

    Args:
        figures: Metric -> check -> value, as `koord nightly` serves them; None if it does not answer.
        now: Unix time.
    """
    if figures is None:
        yield Finding("nightly", Verdict.BROKEN, "does not answer", "see the log of `koord nightly`")
        return
    succeeded = figures.get(NIGHTLY_SUCCESS, {})
    for check, ran in figures.get(NIGHTLY_RUN, {}).items():
        hours = (now - succeeded.get(check, 0.0)) / HOUR
        if not ran:
            yield Finding(f"nightly {check}", Verdict.OK, "has not run yet")
        elif succeeded.get(check) != ran:
            yield Finding(f"nightly {check}", Verdict.BROKEN, "failed in its last run", NIGHTLY_REMEDY)
        elif hours > MOST_NIGHTLY_HOURS:
            told = f"has succeeded {hours:.0f} h ago"
            yield Finding(f"nightly {check}", Verdict.WARNING, told, NIGHTLY_REMEDY)
        else:
            yield Finding(f"nightly {check}", Verdict.OK, f"has succeeded {hours:.1f} h ago")


def nightly_job_finding(
    schedules: Iterable[Mapping[str, Any]], jobs: Iterable[Mapping[str, Any]], now: float
) -> Finding:
    """About the CronJob that does the nightly checks on Kubernetes.

    BROKEN: a job has failed, and none has succeeded since it began. WARNING: the CronJob is missing or suspended, or no
    job has succeeded for 36 hours.

    Args:
        schedules: CronJobs of the manager's namespace, as JSON.
        jobs: Jobs of the same namespace, as JSON.
        now: Unix time.
    """
    check = f"CronJob {NIGHTLY_JOB}"
    schedule = next((each for each in schedules if each["metadata"]["name"] == NIGHTLY_JOB), None)
    if schedule is None:
        return Finding(check, Verdict.WARNING, "is missing: nothing backs up the log", "apply k8s/base/nightly.yaml")
    succeeded: str | None = schedule.get("status", {}).get("lastSuccessfulTime")
    failed = [
        each["metadata"]["name"]
        for each in jobs
        if _belongs_to(schedule, each) and _has_failed(each) and each["status"]["startTime"] > (succeeded or "")
    ]
    hours = (now - datetime.fromisoformat(succeeded or schedule["metadata"]["creationTimestamp"]).timestamp()) / HOUR
    if failed:
        return Finding(check, Verdict.BROKEN, f"has failed jobs: {', '.join(sorted(failed))}", NIGHTLY_REMEDY)
    if schedule["spec"].get("suspend"):
        namespace = schedule["metadata"]["namespace"]
        remedy = f'kubectl patch cronjob {NIGHTLY_JOB} -n {namespace} -p \'{{"spec": {{"suspend": false}}}}\''
        return Finding(check, Verdict.WARNING, "is suspended: nothing backs up the log", remedy)
    told = f"has succeeded {hours:.1f} h ago" if succeeded else f"has not succeeded since it began {hours:.1f} h ago"
    if hours > MOST_NIGHTLY_JOB_HOURS:
        return Finding(check, Verdict.WARNING, told, NIGHTLY_REMEDY)
    return Finding(check, Verdict.OK, told)


def _belongs_to(schedule: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    owners = job["metadata"].get("ownerReferences") or ()
    return any(each["uid"] == schedule["metadata"]["uid"] for each in owners)


def _has_failed(job: Mapping[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Failed" and each["status"] == "True" for each in conditions)


def process_findings(process: ProcessStatus) -> Iterator[Finding]:
    """BROKEN: a process of the embedded stack has ended, and is not ready again. Nothing if it runs."""
    if process.state not in (ProcessState.BACKING_OFF, ProcessState.GIVEN_UP):
        return
    check, words = f"process {process.name}", process.last_words or f"exit code {process.last_exit}"
    if process.state is ProcessState.GIVEN_UP:
        remedy = "mend this, then koord down and koord up"
        yield Finding(check, Verdict.BROKEN, f"has ended, and is not restarted: {words}", remedy)
    else:
        yield Finding(check, Verdict.BROKEN, f"has ended, and is restarted: {words}", f"see {process.log_file}")


def disk_finding(folder: str, free: int) -> Finding:
    """BROKEN: the disk has less than 64 MiB free. WARNING: less than 5 GiB. `free`: bytes."""
    told = f"{free / GIB:.1f} GiB are free in {folder}"
    if free < RESTART_FREE_BYTES:
        return Finding("disk", Verdict.BROKEN, f"{free / MIB:.1f} MiB are free in {folder}", DISK_FULL)
    if free < LEAST_FREE:
        return Finding("disk", Verdict.WARNING, told, "free space, or put KOORD_VAR on another disk")
    return Finding("disk", Verdict.OK, told)


def key_finding(open_files: Iterable[str]) -> Finding:
    """BROKEN: users other than the owner can read some key files. `open_files`: names of these."""
    names = ", ".join(sorted(open_files))
    if names:
        return Finding("keys", Verdict.BROKEN, f"others can read {names}", "chmod 600, then koord keys rotate")
    return Finding("keys", Verdict.OK, "only their owner can read them")


def webhook_finding(policies: Iterable[Mapping[str, Any]]) -> Finding:
    """WARNING: any address can reach the port of the webhooks.

    Args:
        policies: NetworkPolicies of the manager's namespace, as JSON.
    """
    check, remedy = "webhooks", "name the addresses of the API server: docs/guide/install-on-kubernetes.md"
    restricting = [policy for policy in policies if _restricts_manager(policy["spec"])]
    if not restricting:
        return Finding(check, Verdict.WARNING, "no NetworkPolicy restricts who reaches the manager", remedy)
    names = [policy["metadata"]["name"] for policy in restricting if any(map(_is_open, _ingress(policy["spec"])))]
    if names:
        told = f"any address may reach the port of the webhooks: NetworkPolicy {', '.join(names)}"
        return Finding(check, Verdict.WARNING, told, remedy)
    return Finding(check, Verdict.OK, "NetworkPolicies restrict who reaches the port of the webhooks")


def _restricts_manager(spec: Mapping[str, Any]) -> bool:
    selector = codec.convert(spec.get("podSelector") or {}, LabelSelector)
    return "Ingress" in spec.get("policyTypes", ("Ingress",)) and is_matching(selector, MANAGER_LABELS, missing=True)


def _ingress(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The rules about the port of the webhooks. A rule without ports is about all ports."""
    for rule in spec.get("ingress") or ():
        ports = rule.get("ports") or ({"port": WEBHOOK_PORT},)
        if any(_is_of_webhooks(each.get("port", WEBHOOK_PORT), each.get("endPort")) for each in ports):
            yield rule


def _is_of_webhooks(port: int | str, end_port: int | None) -> bool:
    return port == "webhook" if isinstance(port, str) else port <= WEBHOOK_PORT <= (end_port or port)


def _is_open(rule: Mapping[str, Any]) -> bool:
    """Whether a rule admits every address: it names one such block, or no peer at all."""
    peers = rule.get("from") or ()
    return not peers or any("ipBlock" in peer and peer["ipBlock"]["cidr"] in _ANY_ADDRESS for peer in peers)
