"""Keep the root quotas of ElasticQuotaProfiles up to date with the nodes that the profiles select.

If a profile or any node changed, the root quota is computed, and recorded if it differs. Without an API server, a
quota object that differs from the computed quota is corrected by a further fact. After the deletion of a profile, its
recorded root quota is dropped, and its quota object stays.

`min` of a root quota is the sum of the nodes that the profile selects.

Source:
    manager spec, 14
"""

import re
from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

import msgspec
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.protocol import keys
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.objects import KubeStruct, LabelSelector, Node, ObjectMeta, object_from_json
from koordcore.protocol.selectors import compile_selector
from koordcore.state.aggregates import CustomObjectState, QuotaProfileState
from koordcore.values import codec
from koordcore.values import resources as amounts
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_value

from koord_manager.domain.admission.context.facts import QUOTA_PROFILES
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import QUOTA_PROFILE

UNLIMITED: Final = 4611686018427387
_DEFAULT_KEYS: Final = ("cpu", "memory")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class ElasticQuotaProfileSpec(KubeStruct):
    quota_name: str = ""
    quota_labels: dict[str, str] = {}
    resource_ratio: str | None = None  # Factor for the resources of the nodes, as text, or None for 1
    node_selector: LabelSelector | None = None  # Selector of the nodes, or None, which selects no node


class ElasticQuotaProfile(KubeStruct):
    """An ElasticQuotaProfile object of quota.koordinator.sh/v1alpha1."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ElasticQuotaProfileSpec = msgspec.field(default_factory=ElasticQuotaProfileSpec)


def tree_id_of(profile: ElasticQuotaProfile) -> str:
    """Return the tree id of a profile: its label, or else a hash of its namespace and name."""
    own = profile.metadata.labels.get(keys.QUOTA_TREE_ID)
    if own:
        return own
    digest = _FNV_OFFSET
    for byte in f"{profile.metadata.namespace}/{profile.metadata.name}".encode():
        digest = (digest ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return str(digest)


def root_quota(profile: ElasticQuotaProfile, version: int, nodes: Iterable[Node]) -> QuotaProfileRendered:
    """Compute the root quota of a profile. A missing selector selects none of the nodes, an empty one all.

    Raises:
        InvalidInput: The selector is invalid.

    Source: manager spec, 14; vectors manager/quota_profile.
    """
    selector = compile_selector(profile.spec.node_selector) if profile.spec.node_selector is not None else None
    total: amounts.ResourceList = {}
    unschedulable: amounts.ResourceList = {}
    count = 0
    for node in nodes:
        if selector is None or not selector.matches(node.metadata.labels):
            continue
        count += 1
        allocatable = _readable(node)
        total = amounts.add(total, allocatable)
        if node.spec.unschedulable or not _is_ready(node):
            unschedulable = amounts.add(unschedulable, allocatable)
    ratio = _ratio(profile.spec.resource_ratio)
    total, unschedulable = _scaled(total, ratio), _scaled(unschedulable, ratio)
    tree_id = tree_id_of(profile)
    resource_keys = _resource_keys(profile)
    total_texts, unschedulable_texts = amounts.format_resources(total), amounts.format_resources(unschedulable)
    return QuotaProfileRendered(
        quota_namespace=profile.metadata.namespace,
        quota_name=profile.spec.quota_name,
        labels={
            keys.QUOTA_PROFILE: profile.metadata.name,
            **profile.spec.quota_labels,
            keys.QUOTA_TREE_ID: tree_id,
            keys.QUOTA_IS_ROOT: "true",
        },
        annotations={
            keys.QUOTA_TOTAL_RESOURCE: codec.encode(total_texts).decode(),
            keys.QUOTA_UNSCHEDULABLE_RESOURCE: codec.encode(unschedulable_texts).decode(),
        },
        min={key: total_texts.get(key, "0") for key in resource_keys},
        max=dict.fromkeys(resource_keys, str(UNLIMITED)),
        total=total_texts,
        unschedulable=unschedulable_texts,
        nodes=count,
        profile_version=version,
    )


def _readable(node: Node) -> amounts.ResourceList:
    try:
        return amounts.parse_resources(node.status.allocatable)
    except InvalidInput:
        return {}  # such a node lends nothing to anybody


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def _ratio(text: str | None) -> float | None:
    """Return a ratio if it is above 0 and at most 1, or None if nothing has to be scaled."""
    if text is None or _DECIMAL.fullmatch(text) is None:
        return None
    ratio = float(text)
    return ratio if 0 < ratio <= 1 else None


def _scaled(resources: amounts.ResourceList, ratio: float | None) -> amounts.ResourceList:
    if ratio is None:
        return resources
    return {
        name: amounts.quantity_of(name, int(float(amounts.amount_of(name, quantity)) * ratio))
        if name == amounts.CPU
        else of_value(int(float(quantity.value()) * ratio), quantity.notation)
        for name, quantity in resources.items()
    }


def _resource_keys(profile: ElasticQuotaProfile) -> list[str]:
    text = profile.metadata.annotations.get(keys.QUOTA_RESOURCE_KEYS)
    if text:
        try:
            return decode(text, list[str])
        except InvalidInput:
            pass
    return list(_DEFAULT_KEYS)


QUOTAS: Final = "elasticquotas"
INTERVAL_SECONDS: Final = 10
_API_VERSION: Final = "scheduling.sigs.k8s.io/v1alpha1"


class QuotaProfileController:
    """Computes the root quotas of profiles, and remembers from which versions each was computed last.

    Args:
        keeps_objects: Whether this controller also writes the quota objects. Otherwise the gateway writes them.
    """

    def __init__(self, *, keeps_objects: bool = True) -> None:
        self._keeps_objects = keeps_objects
        self._last: datetime | None = None
        self._nodes: list[Node] | None = None
        self._rendered: dict[str, tuple[int, int]] = {}

    def take(self, view: ManagerView, now: datetime) -> list[str]:
        """Return the ids of all profiles, except those in a back-off, if ten seconds have passed since the last run.

        Deleted profiles whose root quota is still recorded are included. Otherwise return an empty list.
        """
        if self._last is not None and (now - self._last).total_seconds() < INTERVAL_SECONDS:
            return []
        self._last, self._nodes = now, None
        profiles = [id_ for id_, _ in view.customs(QUOTA_PROFILES)]
        self._rendered = {id_: self._rendered[id_] for id_ in profiles if id_ in self._rendered}
        view.queue.resync(QUOTA_PROFILE, dict.fromkeys([*profiles, *view.state.of_kind(QuotaProfileState)]))
        return view.queue.take(QUOTA_PROFILE)

    def decide(self, view: ManagerView, id_: str) -> list[Draft]:
        """Return the fact that brings the root quota of a profile up to date, or that drops it with its profile.

        `id_`: `<namespace>=<name>` of the profile.
        """
        stored = view.state.of_kind(CustomObjectState).get(f"{QUOTA_PROFILES}={id_}")
        state = view.state.of_kind(QuotaProfileState).get(id_)
        if stored is None:
            return [Draft(AggregateRef("quotaprofile", id_), QuotaProfileDropped(), state.seq)] if state else []
        inputs = (stored.seq, view.node_version)
        if self._rendered.get(id_) != inputs or state is None:
            if self._nodes is None:
                self._nodes = [node for token in view.nodes() if (node := view.node(token)) is not None]
            event = render(stored, self._nodes)
            if is_news(state, event):
                return [Draft(AggregateRef("quotaprofile", id_), event, state.seq if state else 0)]
            self._rendered[id_] = inputs  # only now: what the log refuses is rendered again in the next round
        if not self._keeps_objects or state is None or state.fault:
            return []
        return [*object_drafts(view, state), *tree_id_drafts(view, id_, stored, state)]


def render(stored: CustomObjectState, nodes: Iterable[Node]) -> QuotaProfileRendered:
    """Return the event with the computed root quota of a profile, or with the reason why the profile is not valid.

    The event names only the labels and annotations that the profile sets. Those that others set on the quota object
    belong to them: recorded here, an old value of theirs would later replace a newer one.
    """
    profile = ElasticQuotaProfile()
    try:
        profile = object_from_json(stored.object, ElasticQuotaProfile)
        return root_quota(profile, stored.seq, nodes)
    except (InvalidInput, codec.DecodeError) as error:
        return QuotaProfileRendered(
            quota_namespace=profile.metadata.namespace,
            quota_name=profile.spec.quota_name,
            fault=str(error),
            profile_version=stored.seq,
        )


_published = attrgetter("quota_namespace", "quota_name", "labels", "annotations", "min", "max", "fault")


def is_news(state: QuotaProfileState | None, event: QuotaProfileRendered) -> bool:
    if state is None:
        return True
    if event.fault:
        return event.fault != state.fault
    return _published(state) != _published(event)


def object_drafts(view: ManagerView, state: QuotaProfileState) -> list[Draft]:
    stored = view.custom(QUOTAS, state.quota_namespace, state.quota_name)
    existing: dict[str, Any] = stored.object if stored else {}
    document = with_root_quota(existing, state)
    if document == existing:
        return []
    ref = custom_ref(QUOTAS, state.quota_namespace, state.quota_name)
    return [Draft(ref, CustomObjectObserved(object=document), view.state.last_seq(ref))]


def with_root_quota(existing: dict[str, Any], quota: QuotaProfileRendered | QuotaProfileState) -> dict[str, Any]:
    """Return an ElasticQuota ({} if there is none) with a computed root quota. Labels of others stay."""
    metadata: dict[str, Any] = existing.get("metadata") or {}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ElasticQuota",
        **existing,
        "metadata": {
            **metadata,
            "namespace": quota.quota_namespace,
            "name": quota.quota_name,
            "labels": {**(metadata.get("labels") or {}), **quota.labels},
            "annotations": {**(metadata.get("annotations") or {}), **quota.annotations},
        },
        "spec": {**(existing.get("spec") or {}), "min": quota.min, "max": quota.max},
    }


def tree_id_drafts(view: ManagerView, id_: str, stored: CustomObjectState, state: QuotaProfileState) -> list[Draft]:
    """Return the fact that writes the generated tree id to the profile's label; empty if it has the label."""
    document: dict[str, Any] = stored.object
    metadata: dict[str, Any] = document.get("metadata") or {}
    labels: dict[str, str] = metadata.get("labels") or {}
    if labels.get(keys.QUOTA_TREE_ID):
        return []
    labels = {**labels, keys.QUOTA_TREE_ID: state.labels[keys.QUOTA_TREE_ID]}
    labelled = {**document, "metadata": {**metadata, "labels": labels}}
    ref = AggregateRef("customspec", f"{QUOTA_PROFILES}={id_}")
    return [Draft(ref, CustomObjectObserved(object=labelled), view.state.last_seq(ref))]
