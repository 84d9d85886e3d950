"""`koord fit`: ask where the pods of a manifest would land now, without changing anything.

The pods of a manifest are its Pods, and the pod templates of controllers with their number of replicas.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, cast

import msgspec
import typer
from koordcore.protocol.manifests import read_documents
from koordcore.protocol.objects import OwnerReference, Workload, object_from_json, pod_from_json
from koordcore.requests.fit import FitAnswer, FitRequest, Headroom, PodSet, SetFit, Shortage
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.access.files import UNREADABLE, manifest_texts
from koordctl.access.log import LogTrouble, wait_for
from koordctl.access.requests import ask_capacity
from koordctl.objects.command import submit_list
from koordctl.render.output import (
    Format,
    console,
    errors,
    fail,
    show_document,
    show_table,
    working,
)
from koordctl.render.units import amount_text, duration_text

POD: Final = "Pod"
_NUMBER_OF: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kind of a controller -> field of its spec with the number of pods that run at the same time."""
_MOST_NAMED: Final = 20
_SUFFIX: Final = "-fit"
"""Suffix of the names under which pods are admitted, because a pod with the plain name may exist."""


class PlannedPods(NamedTuple):
    """The equal pods that one document, such as a Deployment, creates."""

    title: str  # Kind and name of the document, for example "deployment/web"
    pod: dict[str, Any]  # Manifest of one pod before admission
    replicas: int  # Number of pods
    workload: Workload | None  # The controller, whose selector default spreading reads; None for a Pod


def planned_pods(document: object) -> PlannedPods | None:
    """None if the document's kind creates no pods.

    Raises:
        InvalidInput: The document is not valid. The error names field, rule and value.
    """
    if not isinstance(document, dict):
        raise InvalidInput("an object with apiVersion and kind", document)
    entries = cast("dict[str, Any]", document)
    kind = entries.get("kind")
    if not isinstance(kind, str) or (kind != POD and kind not in _NUMBER_OF):
        return None
    metadata = _object(entries.get("metadata", {}), "metadata")
    name, namespace = metadata.get("name") or metadata.get("generateName", ""), metadata.get("namespace") or "default"
    if not isinstance(name, str) or not name:
        raise InvalidInput("a name", name, "metadata.name")
    title = f"{kind.lower()}/{name}"
    if kind == POD:
        kept = {key: value for key, value in metadata.items() if key not in ("uid", "generateName")}
        return PlannedPods(title, {**entries, "metadata": {**kept, "name": name, "namespace": namespace}}, 1, None)
    spec = _object(entries.get("spec"), "spec")
    template = _object(spec.get("template"), "spec.template")
    workload = _workload(entries, name, namespace, spec)
    return PlannedPods(title, _templated(template, workload), _replicas(spec, _NUMBER_OF[kind]), workload)


def _templated(template: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    meta = workload.metadata
    owner = OwnerReference(
        api_version=workload.api_version, kind=workload.kind, name=meta.name, uid=meta.uid, controller=True
    )
    own = _object(template.get("metadata", {}), "spec.template.metadata")
    metadata = {**own, "name": meta.name, "namespace": meta.namespace, "ownerReferences": [codec.to_builtins(owner)]}
    return {"apiVersion": "v1", "kind": POD, "metadata": metadata, "spec": template.get("spec", {})}


def _workload(entries: Mapping[str, Any], name: str, namespace: str, spec: Mapping[str, Any]) -> Workload:
    flat = {
        "kind": entries["kind"],
        "apiVersion": entries.get("apiVersion", ""),
        "metadata": {"name": name, "namespace": namespace, "uid": f"{entries['kind']}/{namespace}/{name}"},
        "selector": spec.get("selector"),
    }
    try:
        return object_from_json(flat, Workload)
    except codec.DecodeError as error:
        raise InvalidInput(f"valid: {error}", spec.get("selector"), "spec") from None


def _replicas(spec: Mapping[str, Any], field: str) -> int:
    number = spec.get(field, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InvalidInput("a number of pods, 0 or more", number, f"spec.{field}")
    return number


def _object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput("an object", value, path)
    return cast("dict[str, Any]", value)


class _Workloads(NamedTuple):
    planned: list[PlannedPods]
    others: list[object]  # Documents of other kinds


def fit(
    filename: Annotated[
        list[str],
        typer.Option(
            "--filename", "-f", help="Pods, Deployments, Jobs, StatefulSets, PodGroups ...: file, folder, or -."
        ),
    ],
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=1, help="Number of pods of the only workload in the manifests.")
    ] = None,
    find_most: Annotated[
        bool, typer.Option("--max", help="Find the greatest number of replicas of the only workload.")
    ] = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="table, yaml or json.")] = Format.TABLE,
    seconds: Annotated[float, typer.Option("--timeout", help="Give up after so many seconds.")] = 30.0,
) -> None:
    """Show where pods would land now, what remains, and what runs out first. Nothing is changed.

    The scheduler decides with its real engine and configuration on a copy of its state: gangs, quotas, devices and
    pods that already wait count. The pods are new ones, beside those that exist. Admission changes them as usual.

    Exit status 0 if all pods get a node, 1 otherwise.

    Examples:

      koord fit -f examples/pod.yaml --replicas 100

      koord fit -f examples/pod.yaml --max

      koord fit -f examples/pod.yaml -o json
    """
    if replicas is not None and find_most:
        fail("--replicas and --max exclude each other", status=2)
    found = _read(filename)
    if (replicas is not None or find_most) and len(found.planned) != 1:
        fail(f"--replicas and --max need exactly one workload in the manifests, found {len(found.planned)}", status=2)
    planned = [each if replicas is None else each._replace(replicas=replicas) for each in found.planned]
    if find_most:
        planned = [each._replace(replicas=1) for each in planned]
    planned = [each for each in planned if each.replicas]
    if not planned and not found.others:
        fail("the manifests contain no pods", status=2)
    request = _admitted(planned, found.others, find_most=find_most)
    try:
        with working("asking the scheduler for nodes"):
            answer = wait_for(ask_capacity(request, seconds=seconds))
    except LogTrouble as error:
        fail(f"{error}; --timeout waits longer")
    if not answer.sets:
        fail("the manifests contain nothing that is placed", status=2)
    if output is Format.TABLE:
        _show(answer, [each.title for each in planned])
    else:
        show_document(codec.to_builtins(answer), output)
    if not (answer.most if find_most else answer.fits):
        raise typer.Exit(1)


def _read(filenames: Sequence[str]) -> _Workloads:
    """End the command if a file cannot be read."""
    found = _Workloads([], [])
    for name in filenames:
        for label, text in manifest_texts(name):
            try:
                documents = read_documents(text)
            except InvalidInput as error:
                fail(f"{label}: {error.sentence()}", status=UNREADABLE)
            for number, document in enumerate(documents):
                try:
                    pods = planned_pods(document)
                except InvalidInput as error:
                    fail(f"{label}: {error.at(f'documents[{number}]').sentence()}")
                if pods is None:
                    found.others.append(document)
                else:
                    found.planned.append(pods)
    return found


def _admitted(planned: Sequence[PlannedPods], others: Sequence[object], *, find_most: bool) -> FitRequest:
    """Return the question with the pods as admission would change them. End the command if a document is refused."""
    pods = [{**each.pod, "metadata": {**each.pod["metadata"], "name": f"{_name(each)}{_SUFFIX}"}} for each in planned]
    results = submit_list([*pods, *others], "/v1/apply", dry_run=True, quiet=True)
    sets = [
        PodSet(pod=_named(result["object"], _name(each)), replicas=each.replicas)
        for each, result in zip(planned, results, strict=False)
    ]
    workloads = [each.workload for each in planned if each.workload is not None]
    objects = [result["object"] for result in results[len(planned) :] if result.get("object")]
    return FitRequest(pods=sets, workloads=workloads, objects=objects, finds_most=find_most)


def _name(planned: PlannedPods) -> str:
    name: str = planned.pod["metadata"]["name"]
    return name


def _named(document: dict[str, Any], name: str) -> Any:
    """An admitted pod with this name, and without the uid that the dry run gave it."""
    pod = pod_from_json(document)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=""))


def _show(answer: FitAnswer, titles: Sequence[str]) -> None:
    reservations = [f"reservation/{each.name}" for each in answer.sets[len(titles) :]]
    for title, each in zip([*titles, *reservations], answer.sets, strict=True):
        _show_set(answer, title, each)
    if answer.nodes:
        show_table(["node", "pods"], _node_rows(answer))
        if len(answer.nodes) > _MOST_NAMED:
            console.print(f"and {len(answer.nodes) - _MOST_NAMED:,} more nodes: -o json")
    for preempting in answer.preempting[:_MOST_NAMED]:
        victims = ", ".join(preempting.victims)
        console.print(f"{preempting.pod} lands on {preempting.node} after {victims} have left")
    if answer.ahead:
        console.print(f"{answer.ahead:,} waiting pods of others were decided first")
    if answer.passed_over:
        sentence = f"{answer.passed_over:,} more were passed over, because they are too many; they may take room first"
        console.print(sentence)
    role = "standby" if answer.by_standby else "leader"
    errors.print(
        f"answered by {answer.answered_by} ({role}) in {duration_text(answer.seconds)}, at position {answer.position}"
    )


def _show_set(answer: FitAnswer, title: str, found: SetFit) -> None:
    style = "green" if found.placed == found.asked and found.placed else "red"
    if answer.most is not None:
        limit = ", perhaps more" if answer.is_limited else ""
        sentence = f"{title}: at most {answer.most:,} replicas fit now{limit}"
    else:
        sentence = f"{title}: {found.placed:,} of {found.asked:,} pods fit now"
    if found.preempting:
        sentence += f", {found.preempting:,} more after preemption"
    console.print(sentence, style=style)
    if found.shortage is not None:
        console.print(f"runs out first: {_shortage_text(found.shortage)}")
    elif found.headroom:
        first = found.headroom[0]
        console.print(f"runs out first: {_place(first)}, after at most {first.replicas:,} more")
    show_table(
        ["remains", "one needs", "free", "most on one node", "more replicas"], map(_headroom_row, found.headroom)
    )


def _shortage_text(found: Shortage) -> str:
    if not found.resource:
        nodes = f" on {found.nodes:,} nodes" if found.nodes else ""
        return f"{found.plugin}: {found.reason}{nodes}" if found.plugin else found.reason

    def amount(value: int) -> str:
        return amount_text(found.resource, value)

    if found.quota:
        where = f"quota {found.quota} has {amount(found.available)} left"
    else:
        where = f"none of {found.nodes:,} nodes has more than {amount(found.available)} free"
    total = f", {amount(found.short_in_total)} in total" if found.short_in_total > found.short_by else ""
    return f"{found.resource}: one needs {amount(found.needed)}, {where}: {amount(found.short_by)} short{total}"


def _headroom_row(found: Headroom) -> list[str]:
    largest = "-" if found.quota else amount_text(found.resource, found.largest)
    amounts = (amount_text(found.resource, amount) for amount in (found.needed, found.free))
    return [_place(found), *amounts, largest, f"{found.replicas:,}"]


def _place(found: Headroom) -> str:
    return f"{found.resource} of quota {found.quota}" if found.quota else found.resource


def _node_rows(answer: FitAnswer) -> Iterator[list[object]]:
    counts = Counter({each.node: len(each.pods) for each in answer.nodes})
    for node, count in counts.most_common(_MOST_NAMED):
        yield [node, f"{count:,}"]
