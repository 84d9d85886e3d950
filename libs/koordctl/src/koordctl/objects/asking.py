"""The objects that `koord get`, `koord delete -l` and completion ask for, now or at a past moment."""

from collections.abc import Sequence
from datetime import datetime
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlencode

from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import NOT_FOUND, ask, find_service, manager, meant_elsewhere, refusal, silent_nodes
from koordctl.access.clock import parse_moment, run_clock
from koordctl.objects.columns import WANTED, Beside, is_cluster_scoped, running_pods
from koordctl.objects.kinds import Target
from koordctl.objects.selectors import in_order, matches, parse_fields, parse_labels
from koordctl.objects.statuses import pod_status
from koordctl.render.output import fail, field

Item = dict[str, Any]
MOST_REASONS = 1000
"""Reasons are shown of so many pending pods, the newest ones."""


class Question(NamedTuple):
    targets: list[Target]
    namespace: str | None  # None: all namespaces, or `default` for an object that is named
    labels: str = ""  # A label selector
    fields: str = ""  # A field selector
    sort_by: str = ""  # A path
    as_of: str | None = None


class Answer(NamedTuple):
    kind: str
    items: list[Item]
    now: datetime | None  # The moment that is shown
    missing: list[str]  # A sentence for each named object that does not exist


def answers(question: Question) -> list[Answer]:
    """One answer for each kind, in the order of the question. A wrong selector ends the command."""
    try:
        labels = parse_labels(question.labels)
        kinds = list(dict.fromkeys(target.kind for target in question.targets))
        fields = {kind: parse_fields(question.fields, kind) for kind in kinds}
        found: list[Answer] = []
        for kind in kinds:
            names = [target.name for target in question.targets if target.kind == kind]
            answer = _answer(kind, None if None in names else [name or "" for name in names], question)
            items = [item for item in answer.items if matches(item, labels, fields[kind])]
            if question.sort_by and items:
                items = [dict(item) for item in in_order(items, question.sort_by)]
            found.append(answer._replace(items=items))
        return found
    except InvalidInput as error:
        fail(f"{error.path}: must be {error.rule}, got {error.value!r}", status=2)


def _answer(kind: str, names: Sequence[str] | None, question: Question) -> Answer:
    namespace = None if is_cluster_scoped(kind) else question.namespace
    if question.as_of is not None:
        return _past(kind, names, namespace, question.as_of)
    now = run_clock().now()
    if names is None:
        return Answer(kind, manager.get(f"/v1/objects/{kind}", {"namespace": namespace})["items"], now, [])
    items: list[Item] = []
    missing: list[str] = []
    for name in names:
        answer = manager.request("GET", f"/v1/objects/{kind}/{name}", params={"namespace": namespace})
        if answer.status_code == NOT_FOUND:
            hint = meant_elsewhere(name, namespace or "default") if kind == "Pod" else ""
            missing.append(f"{refusal(answer)}{hint}")
        else:
            items.append(manager.decoded(answer))
    return Answer(kind, items, now, missing)


def _past(kind: str, names: Sequence[str] | None, namespace: str | None, as_of: str) -> Answer:
    from koordctl.access.past import objects_as_of

    found = objects_as_of(kind, as_of)
    items = [item for item in found.items if namespace in (None, field(item, "metadata.namespace"))]
    at = parse_moment(found.at) if found.at else None
    if names is None:
        return Answer(kind, items, at, [])
    by_name = {str(item["metadata"]["name"]): item for item in items}
    missing = [f"{kind} {name} did not exist at {as_of}" for name in names if name not in by_name]
    return Answer(kind, [by_name[name] for name in names if name in by_name], at, missing)


def beside(answer: Answer, question: Question) -> Beside:
    """What the table of an answer shows besides its objects."""
    shown = Beside(now=answer.now)
    if answer.kind in WANTED:
        return shown._replace(ready=_ready(answer, question))
    if question.as_of is not None:
        return shown
    if answer.kind == "Node" and (url := find_service("projector")):
        return shown._replace(silent=silent_nodes(url) or {})
    if answer.kind == "Pod":
        return shown._replace(reasons=_reasons(answer.items, question.namespace))
    return shown


def _ready(answer: Answer, question: Question) -> dict[Any, int]:
    """Workload -> number of its pods that run."""
    needed = ["Pod", "ReplicaSet"] if answer.kind == "Deployment" else ["Pod"]
    asked = question._replace(targets=[Target(kind, None) for kind in needed], labels="", fields="", sort_by="")
    pods, *sets = answers(asked)
    return running_pods(pods.items, sets[0].items if sets else ())


def _reasons(pods: Sequence[Item], namespace: str | None) -> dict[str, str]:
    """Uid -> why the pod has no node, from the projector. Empty if it does not answer, or no pod is pending."""
    pending = [pod for pod in pods if pod_status(pod) == "Pending"]
    url = find_service("projector") if pending else None
    if url is None:
        return {}
    uid = field(pending[0], "metadata.uid") if len(pending) == 1 else None
    wanted = {"phase": "pending", "namespace": namespace, "limit": MOST_REASONS, "text": uid}
    given = urlencode({name: value for name, value in wanted.items() if value})
    try:
        answer = ask(f"{url}/api/pods?{given}", timeout=5)
        found: list[Item] = answer.json()["pods"] if answer.is_success else []
    except (OSError, HTTPException, ValueError):
        return {}
    return {str(pod["uid"]): str(pod["message"]) for pod in found if pod["message"]}
