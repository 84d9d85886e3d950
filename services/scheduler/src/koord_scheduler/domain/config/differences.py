"""Differences between two configurations, for `koord replay --rerun-scheduler`.

A file is used as it is: plugins that it does not enable are off.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from koord_scheduler.domain.config.catalogue import BUILT_IN, Catalogue
from koord_scheduler.domain.config.effective import EffectiveConfiguration, EffectiveProfile
from koord_scheduler.domain.framework.plugin import Point

_ABSENT = "unset"


def differences(
    before: EffectiveConfiguration, after: EffectiveConfiguration, catalogue: Catalogue = BUILT_IN
) -> Iterator[str]:
    """Yield a sentence for each difference: plugins, extension points, weights, arguments, back-off and profiles.
    Profiles are compared by name. If each configuration has a single profile, these two are compared whatever their
    names are. Plugins outside the catalogue are not compared.
    """
    for field, old, new in (
        ("podInitialBackoffSeconds", before.pod_initial_backoff_seconds, after.pod_initial_backoff_seconds),
        ("podMaxBackoffSeconds", before.pod_max_backoff_seconds, after.pod_max_backoff_seconds),
    ):
        if old != new:
            yield f"{field} {old} -> {new}"
    if len(before.profiles) == len(after.profiles) == 1:
        old_name, new_name = before.profiles[0].scheduler_name, after.profiles[0].scheduler_name
        if old_name != new_name:
            yield f"schedulerName {old_name} -> {new_name}"
        yield from _of_profile(before.profiles[0], after.profiles[0], catalogue)
        return
    for profile in before.profiles:
        other = after.profile(profile.scheduler_name)
        if other is None:
            yield f"profile {profile.scheduler_name}: gone"
        else:
            found = _of_profile(profile, other, catalogue)
            yield from (f"profile {profile.scheduler_name}: {difference}" for difference in found)
    for profile in after.profiles:
        if before.profile(profile.scheduler_name) is None:
            yield f"profile {profile.scheduler_name}: new"


def _of_profile(before: EffectiveProfile, after: EffectiveProfile, catalogue: Catalogue) -> Iterator[str]:
    old, new = _running(before), _running(after)
    yield from _switched("off", old.keys() - new.keys(), catalogue)
    yield from _switched("on", new.keys() - old.keys(), catalogue)
    both = [name for name in catalogue if name in old and name in new]
    for point in Point:
        for how, here, there in (("no longer", old, new), ("now also", new, old)):
            names = [name for name in both if point in here[name] and point not in there[name]]
            if names:
                yield f"{how} at {point}: {', '.join(names)}"
    for name in both:
        weight, now = before.weights.get(name), after.weights.get(name)
        if weight is not None and now is not None and weight != now:
            yield f"{name} weight {weight} -> {now}"
        args, others = (side.args[name].as_json() if name in side.args else {} for side in (before, after))
        yield from (
            f"{name} {path} {_text(was)} -> {_text(is_now)}" for path, was, is_now in _changed("", args, others)
        )
    if before.percentage_of_nodes_to_score != after.percentage_of_nodes_to_score:
        yield f"percentageOfNodesToScore {before.percentage_of_nodes_to_score} -> {after.percentage_of_nodes_to_score}"


def _running(profile: EffectiveProfile) -> Mapping[str, list[Point]]:
    """Return plugin -> the extension points at which it runs."""
    found: dict[str, list[Point]] = {}
    for point, names in profile.points.items():
        for name in names:
            found.setdefault(name, []).append(point)
    return found


def _switched(how: str, plugins: Iterable[str], catalogue: Catalogue) -> Iterator[str]:
    switched = set(plugins)
    names = [name for name in catalogue if name in switched]
    if names:
        yield f"{how}: {', '.join(names)}"


def _changed(path: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    """Yield (path, before, after) for each difference. Objects are compared field by field, other values as a whole."""
    was, is_now = _fields(old), _fields(new)
    if was is None or is_now is None:
        if old != new:
            yield path, old, new
        return
    for name in dict.fromkeys((*was, *is_now)):
        place = name if not path else f"{path}{name}" if name.startswith("[") else f"{path}.{name}"
        yield from _changed(place, was.get(name, _ABSENT), is_now.get(name, _ABSENT))


def _fields(value: object) -> Mapping[str, object] | None:
    """Return the fields of an object, or the items of a list of named objects by name; None for other values."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    items = cast("list[object]", value) if isinstance(value, list) else []
    objects = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    if not objects or len(objects) != len(items) or not all("name" in item for item in objects):
        return None
    return {f"[{item['name']}]": {key: item[key] for key in item if key != "name"} for item in objects}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
