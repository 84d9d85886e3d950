"""Kubernetes objects as they were at an earlier position or time, from the history that the projector keeps.

The projector returns aggregates. This module assembles objects from them as the manager does for the present: a pod
with its node, a node with its published resources.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import typer

from koordctl.access.clients import NOT_FOUND, projector, refusal
from koordctl.access.clock import given_moment
from koordctl.render.output import fail
from koordctl.render.units import time_text

PAGE: Final = 5_000
SOURCES: Final = {
    "Pod": "podspec",
    "Node": "nodespec",
    "ConfigMap": "config",
    "Namespace": "namespace",
    "PriorityClass": "priorityclass",
    "Deployment": "workloadspec",
    "Job": "workloadspec",
}
API_VERSIONS: Final = {"Deployment": "apps/v1", "Job": "batch/v1", "PriorityClass": "scheduling.k8s.io/v1"}

CUSTOM: Final = "customspec"
FACTS_OF_STATUS: Final = {
    "ClusterNetworkTopology": ("clustertopology",),
    "DrainNode": ("drain",),
    "DrainNodeGroup": ("draingroup",),
    "ElasticQuota": ("quota",),
    "ElasticQuotaProfile": ("quotaprofile",),
    "PodGroup": ("gang",),
    "PodMigrationJob": ("migration",),
    "Recommendation": ("recommendation",),
    "Reservation": ("node", "pod", "reservation"),
    "ScheduleExplanation": ("scheduleexplanation",),
}
"""Kind of a custom resource -> kinds of the aggregates from which its status follows."""

State = dict[str, Any]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", help="Position, RFC 3339 time, or duration before now (5m): as of then."),
]


def moment_text(text: str) -> str:
    """The value of `--as-of` as the projector expects it: a position, or a time. End the command if it is invalid."""
    return text if text.isascii() and text.isdigit() else given_moment("--as-of", text).isoformat()


def ask_as_of(path: str, at: str, **params: object) -> Any:
    """Ask the projector about an object at a past moment. None if the object did not exist then.

    If the projector does not accept the moment, end the command.

    Args:
        path: Path of the read API.
        at: Position of the log, or RFC 3339 time.
        params: Further query parameters.
    """
    given = {name: value for name, value in params.items() if value is not None}
    response = projector.request("GET", path, params={**given, "at": at})
    if response.status_code == NOT_FOUND:
        return None
    if response.is_client_error:
        fail(refusal(response).replace("at: must be", "--as-of must be", 1))
    return projector.decoded(response)


def pages_of(path: str, as_of: str | None, **params: object) -> Iterator[Any]:
    """Yield the pages of a list of the read API. If the projector does not accept the moment, end the command.

    Args:
        as_of: Position of the log, or RFC 3339 time; None for the present.
        params: Further query parameters.
    """
    at = "" if as_of is None else moment_text(as_of)
    after: str | None = ""
    while after is not None:
        asked = {**params, "after": after}
        page = ask_as_of(path, at, **asked) if at else projector.get(path, asked)
        # A time is resolved once: every page shows the same position.
        at = str(page["moment"]["position"]) if at else ""
        yield page
        after = page["after"]


class Past(NamedTuple):
    """The projector's answer about an object at a past moment."""

    position: int
    at: str
    answer: dict[str, Any]

    @property
    def label(self) -> str:
        return f" as of position {self.position} ({time_text(self.at)})"


def past_of(path: str, at: str, missing: str) -> Past:
    """Return the projector's answer. End the command with the error `missing` if the object did not exist then."""
    answer = ask_as_of(path, moment_text(at))
    if answer is None:
        fail(missing)
    return Past(int(answer["moment"]["position"]), str(answer["moment"]["occurred_at"]), answer)


class Objects(NamedTuple):
    items: list[State]
    at: str  # RFC 3339 time of their moment: the one that was asked for, or of the newest fact up to the position
    position: str  # Of their moment


def objects_as_of(kind: str, at: str) -> Objects:
    """All objects of a kind, by namespace and name. If the projector does not accept the moment, end the command.

    `at`: the value of `--as-of`.
    """
    asked = moment_text(at)
    states, at, time = _aggregates(SOURCES.get(kind, CUSTOM), asked)
    items: list[State] = []
    if kind == "Pod":
        placed, agents = _aggregates("pod", at).states, _aggregates("nodestate", at).states
        running = {uid for agent in agents.values() for uid in agent.get("running", ())}
        items = [_pod(state["object"], placed.get(uid, {}), is_running=uid in running) for uid, state in states.items()]
    elif kind == "Node":
        policies = _aggregates("nodepolicy", at).states
        items = [
            _node(state["object"], policies.get(token, {})) for token, state in states.items() if state.get("object")
        ]
    elif kind in ("Deployment", "Job"):
        items = [_workload(state["object"]) for state in states.values() if state["object"].get("kind") == kind]
        mirrored = _aggregates(CUSTOM, at).states  # those of an API server
        found = [dict(state["object"]) for state in mirrored.values() if state.get("object")]
        items += [item for item in found if item.get("kind") == kind]
    else:
        items = [dict(state["object"]) for state in states.values() if state.get("object")]
    if kind not in SOURCES:
        items = _with_status(kind, [item for item in items if item.get("kind") == kind], at)
    shown: list[State] = [{"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind, **item} for item in items]
    shown.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"].get("name", "")))
    return Objects(shown, time if asked.isdigit() else asked, at)


def _with_status(kind: str, items: list[State], at: str) -> list[State]:
    """Return custom resources with the status that the services had computed for them at a past moment."""
    facts = FACTS_OF_STATUS.get(kind, ())
    if not items or not facts:
        return items
    # Imported here: most commands need neither code of the manager nor the definitions of custom resources.
    from koord_manager.domain.gateway.published_status import with_published_status
    from koordcore.protocol.crd import accepted_kinds
    from koordcore.state import ClusterState
    from koordcore.values import codec

    known = {each: _aggregates(each, at).states for each in facts}
    states = {each: {id_: {"seq": 0, **state} for id_, state in found.items()} for each, found in known.items()}
    folded = ClusterState.restore(codec.encode({"position": int(at), "aggregates": states}))
    plural = next(resource.plural for resource in accepted_kinds() if resource.kind == kind)
    return [with_published_status(folded, plural, item) for item in items]


class _Aggregates(NamedTuple):
    states: dict[str, State]  # Id -> state
    position: str  # Of the moment
    time: str  # Of the newest fact at that moment, RFC 3339


def _aggregates(kind: str, at: str) -> _Aggregates:
    """Return every aggregate of a kind at a past moment."""
    found: dict[str, State] = {}
    after: str | None = None
    while True:
        page = ask_as_of(f"/api/objects/{kind}", at, after=after, limit=PAGE)
        # A time is resolved once: every page and every kind shows the same position.
        at = str(page["moment"]["position"])
        found.update({entry["id"]: entry["state"] for entry in page["objects"] if entry["state"] is not None})
        after = page["after"]
        if after is None:
            return _Aggregates(found, at, str(page["moment"]["occurred_at"]))


def _pod(found: State, placed: State, *, is_running: bool) -> State:
    pod = {**found, "spec": dict(found.get("spec", {})), "status": dict(found.get("status", {}))}
    if placed.get("node"):
        pod["spec"]["nodeName"] = placed["node"]
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            pod["status"]["phase"] = "Running" if is_running else "Pending"
    return pod


def _node(found: State, policy: State) -> State:
    from koordcore.state.aggregates import NodePolicyState, policy_resources
    from koordcore.values import codec

    status = dict(found.get("status", {}))
    lent = policy_resources(codec.convert({"seq": 0, **policy}, NodePolicyState))
    for field in ("capacity", "allocatable"):
        if lent:
            status[field] = {**status.get(field, {}), **{name: str(amount) for name, amount in lent.items()}}
    return {**found, "status": status}


def _workload(found: State) -> State:
    number = "replicas" if found.get("kind") == "Deployment" else "parallelism"
    lifted = ("kind", "apiVersion", "replicas", "selector", "template")
    rest = {name: value for name, value in found.items() if name not in lifted}
    selector = {"selector": found["selector"]} if found.get("selector") else {}
    return {**rest, "spec": {number: found.get("replicas", 1), **selector, "template": found.get("template", {})}}
