"""Find labels and annotations that are ignored: unknown values, misspelled keys, and keys in the wrong map.

Pure; the rules are in `metadata_rules`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from koordcore.protocol import keys, recommendations
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.documents.warnings.any_document import object_of
from koord_manager.domain.documents.warnings.metadata_rules import HOLDERS, POD, Holder, MetadataRule

_OWN: Final = "koordinator.sh"
_CLOSE: Final = 0.8
_CLOSE_DOMAIN: Final = 0.9
MOST_KEYS: Final = 200
"""Maximum number of checked keys of one map; an unknown key costs up to half a millisecond."""
_LONGEST_KEY: Final = 317
"""A domain of 253, a slash, a name of 63: longer keys are refused."""
_NOTHING: Final = Holder({}, {})


def _known_keys() -> frozenset[str]:
    values = [value for module in (keys, recommendations) for value in vars(module).values()]
    domains = (_OWN, keys.POD_GROUP)
    found = {value for value in values if isinstance(value, str) and value.partition("/")[0].endswith(domains)}
    return frozenset(value for value in found if value.partition("/")[2])


KNOWN: Final = _known_keys()
_DOMAINS: Final = frozenset(key.partition("/")[0] for key in KNOWN)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _grouped(of: Callable[[str], str]) -> Mapping[str, tuple[str, ...]]:
    return {group: tuple(key for key in KNOWN if of(key) == group) for group in map(of, KNOWN)}


_KNOWN_BY_DOMAIN: Final = _grouped(lambda key: key.partition("/")[0])
_KNOWN_BY_PLAIN: Final = _grouped(lambda key: _plain(key.partition("/")[2]))


class _Metadata(NamedTuple):
    """Labels and annotations of an object or pod template, their paths in the document, and the rules for values."""

    labels_at: str
    labels: Mapping[str, object]
    annotations_at: str
    annotations: Mapping[str, object]
    holder: Holder


def metadata_warnings(document: object) -> Iterator[str]:
    """Yield a sentence for each label and annotation that is ignored, with field, rule, value and effect."""
    for found in _places(document):
        for at, entries, rules, other, others in (
            (found.labels_at, found.labels, found.holder.labels, found.holder.annotations, "an annotation"),
            (found.annotations_at, found.annotations, found.holder.annotations, found.holder.labels, "a label"),
        ):
            for key, value in islice(entries.items(), MOST_KEYS):
                place = f"{at}[{key}]"
                if key in rules:
                    yield from _misunderstood(place, value, rules[key])
                elif key in other:
                    yield f"{place}: is read as {others} only, here it says nothing"
                elif meant := _meant(key):
                    yield f"{place}: no such key is read; {meant} is"


def _misunderstood(place: str, value: object, rule: MetadataRule) -> Iterator[str]:
    # what is no text is refused anyway; an empty text mostly counts as none
    if not isinstance(value, str) or (not value and not place.endswith(f"[{keys.PRIORITY_CLASS}]")):
        return
    try:
        rule.check(value)
    except InvalidInput as error:
        fault = error.at(place)
        yield f"{fault.path}: should be {fault.rule}, got {fault.value!r}" + (f"; {rule.effect}" if rule.effect else "")


@lru_cache(maxsize=4096)
def _meant(key: str) -> str | None:
    domain, _, name = key.partition("/")
    if key in KNOWN or not name or len(key) > _LONGEST_KEY or key.startswith(keys.SYNC_BARRIER_PREFIX):
        return None
    near = domain if domain in _DOMAINS else next(iter(get_close_matches(domain, _DOMAINS, 1, _CLOSE_DOMAIN)), None)
    if near is None and not domain.endswith(_OWN):
        return None
    found = _KNOWN_BY_PLAIN.get(_plain(name)) or _alike(name, _KNOWN_BY_DOMAIN.get(near or "", ()))
    return max(sorted(found), key=lambda known: SequenceMatcher(None, key, known).ratio(), default=None)


def _alike(name: str, known: Iterable[str]) -> list[str]:
    matcher = SequenceMatcher(None, b=name.lower())
    found: list[str] = []
    for each in known:
        matcher.set_seq1(each.partition("/")[2].lower())
        bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
        if all(ratio() >= _CLOSE for ratio in bounds):
            found.append(each)
    return found


def _places(document: object) -> Iterator[_Metadata]:
    fields = object_of(document)
    kind, spec = str(fields.get("kind")), object_of(fields.get("spec"))
    yield _metadata("metadata", object_of(fields.get("metadata")), HOLDERS.get(kind, _NOTHING))
    template = object_of(object_of(spec.get("template")).get("metadata"))
    if template:
        yield _metadata("spec.template.metadata", template, POD)
    if kind == "ClusterColocationProfile":
        yield _metadata("spec", spec, POD)


def _metadata(at: str, metadata: Mapping[str, object], holder: Holder) -> _Metadata:
    labels, annotations = object_of(metadata.get("labels")), object_of(metadata.get("annotations"))
    return _Metadata(f"{at}.labels", labels, f"{at}.annotations", annotations, holder)
