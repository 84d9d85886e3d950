"""What slo-controller-config says that nobody reads is told with its place; what is read never is."""

import json
from typing import Any

import pytest
from koord_manager.domain.admission.unread_fields import unread
from koordcore.protocol.config.fields import Field, Kind, Part, fields_of
from koordcore.protocol.config.sections import SECTIONS, SectionName, SectionShape, SectionTable


def told(section: str, document: object) -> list[str]:
    return list(unread({section: json.dumps(document)}))


@pytest.mark.parametrize(
    ("section", "document", "sentence"),
    [
        (
            "colocation-config",
            {"memoryReclaimThresholdPercnt": 60},
            (
                "colocation-config.memoryReclaimThresholdPercnt: unknown field, it is ignored; "
                "did you mean memoryReclaimThresholdPercent?"
            ),
        ),
        (
            "colocation-config",
            {"nodeConfigs": [{"nme": "a"}]},
            "colocation-config.nodeConfigs[0].nme: unknown field, it is ignored; did you mean name?",
        ),
        (
            "resource-threshold-config",
            {"clusterStrategy": {"cpuSuppressPolicy": "banana"}},
            (
                "resource-threshold-config.clusterStrategy.cpuSuppressPolicy: should be one of cpuset, cfsQuota, "
                "got 'banana'; it counts as cpuset"
            ),
        ),
        (
            "resource-threshold-config",
            {"enable": True},
            "resource-threshold-config.enable: unknown field, it is ignored; it belongs into clusterStrategy",
        ),
        (
            "resource-qos-config",
            {"nodeStrategies": [{"beClass": {"cpuQOS": {"groupIdentty": 1}}}]},
            (
                "resource-qos-config.nodeStrategies[0].beClass.cpuQOS.groupIdentty: unknown field, it is ignored; "
                "did you mean groupIdentity?"
            ),
        ),
        (
            "host-application-config",
            {"applications": [{"cgroupPath": {"base": "Root"}}]},
            (
                "host-application-config.applications[0].cgroupPath.base: should be one of CgroupRoot, Kubepods, "
                "KubepodsBurstable, KubepodsBesteffort, got 'Root'"
            ),
        ),
        (
            "cpu-normalization-config",
            {"ratioModel": {"any model": {"basRatio": 1}}},
            (
                "cpu-normalization-config.ratioModel.any model.basRatio: unknown field, it is ignored; "
                "did you mean baseRatio?"
            ),
        ),
        (
            "slo-adjust-config",
            {"nodeConfigs": []},
            "slo-adjust-config.nodeConfigs: unknown field, it is ignored",
        ),
        (
            "colocation-confg",
            {},
            "data.colocation-confg: unknown section, it is ignored; did you mean colocation-config?",
        ),
    ],
)
def test_what_is_not_read_is_told(section: str, document: object, sentence: str) -> None:
    assert told(section, document) == [sentence]


@pytest.mark.parametrize("table", SECTIONS.values(), ids=lambda table: table.name)
def test_everything_that_a_section_can_say_is_read_whatever_its_capitals(table: SectionTable) -> None:
    whole = _object(table.part)
    entry = {"name": "a", "nodeSelector": {"matchLabels": {"a": "b"}}, **whole}
    document: dict[str, Any] = {"clusterStrategy": whole} if table.shape is SectionShape.STRATEGY else dict(whole)
    if table.shape is not SectionShape.CLUSTER_ONLY:
        document[table.entries_key] = [entry]

    assert told(table.name.key, document) == []
    assert told(table.name.key, {key.upper(): value for key, value in document.items()}) == []


def _object(part: type[Part]) -> dict[str, Any]:
    return {name: _whole(field) for name, field in fields_of(part).items()}


def _whole(field: Field) -> Any:
    match field.kind:
        case Kind.OBJECT:
            return _object(field.part)
        case Kind.LIST:
            assert field.item is not None
            return [_whole(field.item)]
        case Kind.MAP:
            assert field.item is not None
            return {"any": _whole(field.item)}
        case Kind.TEXT:
            return field.known[0] if field.known else "text"
        case _:
            return {"any": "thing"}


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", "7", '{"nodeConfigs": 3}', '{"nodeConfigs": [null, 3]}', '{"a":' * 9]
)
def test_what_has_another_shape_says_nothing(text: str) -> None:
    assert unread({SectionName.COLOCATION.key: text, "_example": text}) == ()
