"""What spares admission work answers as the plain way does: looked-up profiles, shared pods, patterns of pointers."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.admission.colocation_profile import translate
from koord_manager.domain.admission.context.profiles import ColocationProfile, ProfileIndex, read_profile
from koord_manager.domain.admission.json_patch import WITHHELD, json_patch, without_secrets
from koord_manager.domain.admission.pods.mutating import editable
from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.values import codec

Json = dict[str, Any]

names = st.sampled_from(("app", "team", "tier"))
values = st.sampled_from(("a", "b", "c"))
labels = st.dictionaries(names, values)
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": names,
            "operator": st.sampled_from(("In", "NotIn")),
            "values": st.lists(values, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"key": names, "operator": st.sampled_from(("Exists", "DoesNotExist", "In"))}),
)
selectors = st.none() | st.fixed_dictionaries(
    {}, optional={"matchLabels": labels, "matchExpressions": st.lists(expressions, max_size=3)}
)


def profiles_of(selected: list[Json | None]) -> list[ColocationProfile]:
    return [
        read_profile({"metadata": {"name": f"p{number}"}, "spec": {} if selector is None else {"selector": selector}})
        for number, selector in enumerate(selected)
    ]


@given(st.lists(selectors, max_size=12), labels, st.randoms())
def test_the_index_finds_the_profiles_that_a_look_at_each_finds(
    selected: list[Json | None], wanted: dict[str, str], shuffle: Any
) -> None:
    profiles = profiles_of(selected)
    by_name = sorted(profiles, key=lambda profile: profile.name)
    shuffle.shuffle(profiles)
    index = ProfileIndex({profile.name: profile for profile in profiles})
    found = [profile for profile in index.candidates(wanted) if profile.pods.matches(wanted)]
    assert found == [profile for profile in by_name if profile.pods.matches(wanted)]
    assert index.all == tuple(by_name)


def test_a_profile_for_another_label_is_not_looked_at() -> None:
    ours, others = profiles_of([{"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}])
    assert ProfileIndex({"p0": ours, "p1": others}).candidates({"app": "a", "team": "b"}) == [ours]


Anything = st.SearchStrategy[Any]
anything: Anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=6,
)


def shaped(**fields: Anything) -> Anything:
    """Objects with some of these fields, and now and then anything else."""
    return st.one_of(st.fixed_dictionaries({}, optional=dict(fields)), anything)


containers = shaped(resources=shaped(requests=anything, limits=anything), env=anything)
listed = st.lists(containers, max_size=2) | anything
pods: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "metadata": shaped(labels=anything, annotations=anything),
        "spec": shaped(containers=listed, initContainers=listed, x=anything),
        "status": anything,
    },
)


def written_to(pod: Json) -> list[Json]:
    """What steps write to."""
    metadata, specs = own(pod, "metadata"), own(pod, "spec")
    containers = [each for spec in specs for name in ("initContainers", "containers") for each in own(spec, name)]
    amounts = [each for container in containers for each in own(container, "resources")]
    named = [(each, name) for each in metadata for name in ("labels", "annotations")]
    named += [(each, name) for each in amounts for name in ("requests", "limits")]
    return [pod, *metadata, *specs, *containers, *amounts, *(each for held, name in named for each in own(held, name))]


def own(holder: Json, name: str) -> list[Json]:
    """The object called so; for containers those of the list, of which steps write to objects only."""
    found: object = holder.get(name)
    if name in ("initContainers", "containers"):
        listed = cast("list[object]", found) if isinstance(found, list) else []
        return [cast("Json", each) for each in listed if isinstance(each, dict)]
    return [cast("Json", found)] if isinstance(found, dict) else []


@given(pods)
def test_an_editable_pod_is_equal_and_shares_nothing_that_a_step_writes_to(pod: Json) -> None:
    written = codec.encode(pod)
    mine = editable(pod)
    assert codec.encode(mine) == written
    assert {id(each) for each in written_to(mine)}.isdisjoint(id(each) for each in written_to(pod))
    assert json_patch(pod, mine) == []


steps = st.sampled_from(
    ("", "spec", "0", "containers", "initContainers", "env", "command", "httpHeaders", "livenessProbe", "environment")
)


@given(st.lists(steps, max_size=6))
def test_what_is_withheld_stands_below_a_container_under_a_name_that_holds_secrets(path: list[str]) -> None:
    begin = next((at for at, step in enumerate(path) if step in ("containers", "initContainers")), len(path))
    is_secret = any(step in ("env", "command", "httpHeaders") for step in path[begin + 1 :])
    pointer = "".join(f"/{step}" for step in path)
    told = without_secrets([{"op": "add", "path": pointer, "value": "x"}])
    assert told == [{"op": "add", "path": pointer, "value": WITHHELD if is_secret else "x"}]
    inside = without_secrets([{"op": "add", "path": pointer, "value": {"args": ["x"]}}])
    is_below = begin < len(path)
    assert inside[0]["value"] == (WITHHELD if is_secret else {"args": WITHHELD if is_below else ["x"]})


def some(**fields: Anything) -> Anything:
    """Objects with some of these fields."""
    return st.fixed_dictionaries({}, optional=dict(fields))


amounts: Anything = st.dictionaries(
    st.sampled_from(("cpu", "memory", "kubernetes.io/batch-cpu")), st.sampled_from(("1", "500m", "1Gi", 2))
)
classes: Anything = st.dictionaries(
    st.sampled_from((keys.QOS_CLASS, keys.PRIORITY_CLASS)),
    st.sampled_from(("BE", "LS", "LSR", "koord-prod", "koord-mid", "koord-batch", "x")),
)
asking = some(resources=some(requests=amounts, limits=amounts))
classed: Anything = some(
    metadata=some(labels=classes),
    spec=some(
        containers=st.lists(asking, max_size=2), priority=st.sampled_from((0, 5500, 7500, 9500)), overhead=amounts
    ),
)


@given(classed)
def test_no_pod_that_is_translated_is_one_that_something_is_recommended_for(pod: Json) -> None:
    if translate(pod):
        assert priority_class(pod_from_json(pod)) is not PriorityBand.PROD
