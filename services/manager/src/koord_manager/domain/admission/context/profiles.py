"""Parse ClusterColocationProfiles and ElasticQuotaProfiles once, and index them, so that they can be matched often.

Most profiles require a value of some label. So a pod is compared only with the profiles that require one of its labels,
and with those that require none.

Source:
    manager spec, 8.1, 8.2 (1), 9.2
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import KubeStruct, LabelSelector, LabelSelectorRequirement, ObjectMeta, object_from_json
from koordcore.protocol.selectors import Operator, Requirement, Selector, compile_selector
from koordcore.values import codec
from koordcore.values.integers import parse_decimal
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.json_object import seen, texts
from koord_manager.domain.admission.request import JsonObject

ALWAYS: Final = 100


class _ProfileSpec(KubeStruct):
    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: int | float | str | None = None
    qos_class: str = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    scheduler_name: str = ""


class _Profile(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _ProfileSpec = msgspec.field(default_factory=_ProfileSpec)


@dataclass(frozen=True, slots=True)
class Match:
    """A parsed label selector of a profile."""

    selector: Selector | None = None  # None if the selector is missing; then all labels match
    valid: bool = True  # False if the selector is not valid; then no labels match

    @property
    def is_everything(self) -> bool:
        """Whether the selector is missing or empty, so that everything matches."""
        return self.valid and (self.selector is None or not self.selector.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.valid and (self.selector is None or self.selector.matches(labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationProfile:
    """A parsed ClusterColocationProfile: which pods it selects, and which fields it sets on them."""

    name: str
    version: str = ""  # Digest of the object, which differs after every change of the object
    # Whether the profile controller also applies the profile to existing pods that wait to be scheduled.
    managed: bool = False
    terminating: bool = False
    namespaces: Match = field(default_factory=Match)
    pods: Match = field(default_factory=Match)
    # Percentage of requests to which the profile applies, 100 if absent. It is an InvalidInput if the text is not
    # valid; then requests are denied.
    probability: int | InvalidInput = ALWAYS
    skips_translation: bool = False  # Whether cpu and memory are not replaced by batch or mid resources
    qos_class: str = ""  # QoS class to set, or empty
    priority_class_name: str = ""  # Priority class to set, or empty
    koordinator_priority: int | None = None  # Value of the priority label to set, or None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    # Label key to read -> label key that gets its value.
    label_keys_mapping: Mapping[str, str] = field(default_factory=dict[str, str])
    # Annotation key to read -> annotation key that gets its value.
    annotation_keys_mapping: Mapping[str, str] = field(default_factory=dict[str, str])
    label_suffixes: Mapping[str, str] = field(default_factory=dict[str, str])  # Label key -> suffix to add to its value
    scheduler_name: str = ""  # Scheduler to set, or empty
    # Strategic merge patch to apply, or None if absent. It is an InvalidInput if the value is not an object.
    patch: JsonObject | InvalidInput | None = None

    @property
    def has_pod_selector(self) -> bool:
        """Whether the profile has a pod selector. The profile controller ignores profiles without one."""
        return self.pods.selector is not None


def read_profile(document: JsonObject) -> ColocationProfile:
    """Parse a ClusterColocationProfile object.

    Raises:
        InvalidInput: A field is not valid; the error names it.
    """
    spec_fields = {name: value for name, value in seen(document, "spec").items() if name != "patch"}
    try:
        profile = object_from_json({"metadata": document.get("metadata"), "spec": spec_fields}, _Profile)
    except codec.DecodeError as error:
        raise InvalidInput(f"a ClusterColocationProfile ({error})", None) from error
    spec = profile.spec
    written_patch: object = seen(document, "spec").get("patch")
    return ColocationProfile(
        name=profile.metadata.name,
        version=hashlib.blake2b(codec.encode_canonical([profile, written_patch]), digest_size=8).hexdigest(),
        managed=profile.metadata.labels.get(keys.CONTROLLER_MANAGED) == "true",
        terminating=profile.metadata.deletion_timestamp is not None,
        namespaces=_match(spec.namespace_selector),
        pods=_match(spec.selector),
        probability=_probability(spec.probability),
        skips_translation=keys.SKIP_UPDATE_RESOURCES in profile.metadata.annotations,
        qos_class=spec.qos_class,
        priority_class_name=spec.priority_class_name,
        koordinator_priority=spec.koordinator_priority,
        labels=spec.labels,
        annotations=spec.annotations,
        label_keys_mapping=spec.label_keys_mapping,
        annotation_keys_mapping=spec.annotation_keys_mapping,
        label_suffixes=spec.label_suffixes,
        scheduler_name=spec.scheduler_name,
        patch=_patch(written_patch),
    )


def _patch(written: object) -> JsonObject | InvalidInput | None:
    """Return the patch of a profile, in which nulls stand for deleted fields.

    Return None without a patch, and an InvalidInput if the value is not an object.
    """
    if written is None or written == {}:
        return None
    if not isinstance(written, dict):
        return InvalidInput("an object", written, "spec.patch")
    return cast("JsonObject", written)


def _match(selector: LabelSelector | None) -> Match:
    if selector is None:
        return Match()
    try:
        return Match(compile_selector(selector))
    except InvalidInput:
        return Match(valid=False)


def _probability(written: int | float | str | None) -> int | InvalidInput:
    """Return the percentage that `30` or `"30%"` means.

    As in Kubernetes, a text without the percent sign is not valid.
    """
    match written:
        case None:
            return ALWAYS
        case str():
            try:
                if written.endswith("%"):
                    return parse_decimal(written[:-1], 64)
            except InvalidInput:
                pass
            return InvalidInput("a whole number of percent: 30 or 30%", written, "spec.probability")
        case _:
            return int(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaProfile:
    namespace: str
    name: str
    tree_id: str  # Id of the quota tree that the profile maintains
    selector: LabelSelector  # Selector of the nodes that belong to the tree

    def expressions(self) -> list[JsonObject]:
        """Return the node selector as match expressions for node affinity.

        Its labels come first, in order of key, then its expressions.
        """
        labelled = [
            LabelSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in sorted(self.selector.match_labels.items())
        ]
        found: list[JsonObject] = []
        for requirement in (*labelled, *self.selector.match_expressions):
            entry: JsonObject = {"key": requirement.key, "operator": requirement.operator}
            if requirement.values:
                entry["values"] = list(requirement.values)
            found.append(entry)
        return found


def read_quota_profile(document: JsonObject) -> QuotaProfile:
    """Parse an ElasticQuotaProfile object.

    Raises:
        InvalidInput: A field is not valid; the error names it.
    """
    metadata = seen(document, "metadata")
    try:
        selector = object_from_json(seen(document, "spec", "nodeSelector"), LabelSelector)
    except codec.DecodeError as error:
        raise InvalidInput(f"a label selector ({error})", None, "spec.nodeSelector") from error
    return QuotaProfile(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        tree_id=texts(document, "metadata", "labels").get(keys.QUOTA_TREE_ID, ""),
        selector=selector,
    )


class ProfileIndex:
    """Colocation profiles, indexed by a label that their pod selector requires."""

    def __init__(self, profiles: Mapping[str, ColocationProfile]) -> None:
        self.all: tuple[ColocationProfile, ...] = tuple(profiles[name] for name in sorted(profiles))
        """In order of name."""
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._by_none: list[int] = []
        for place, profile in enumerate(self.all):
            asked = _value_asked_for(profile.pods)
            if asked is None:
                self._by_none.append(place)
                continue
            for value in asked.values:
                self._by_label.setdefault((asked.key, value), []).append(place)

    def candidates(self, labels: Mapping[str, str]) -> list[ColocationProfile]:
        """Return the profiles whose pod selector may match these labels, in order of name.

        No other profile can match.
        """
        places = list(self._by_none)
        for label in labels.items():
            places += self._by_label.get(label, ())
        return [self.all[place] for place in sorted(places)]


def _value_asked_for(pods: Match) -> Requirement | None:
    requirements = pods.selector.requirements if pods.selector is not None else ()
    return next((asked for asked in requirements if asked.operator is Operator.IN), None)
