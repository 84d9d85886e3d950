"""Templates beside kubectl: the cases are of client-go's tests of JSONPath, and of kubectl's documentation."""

import json
from typing import Any

import pytest
from koordcore.values.invalid import InvalidInput
from koordctl.objects.jsonpath import parse_path, parse_template

NODES: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {
                "capacity": {"cpu": "4"},
                "ready": True,
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2", "labels": {"kubernetes.io/hostname": "127.0.0.2"}},
            "status": {
                "capacity": {"cpu": "8"},
                "ready": False,
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}},
    ],
}
STORE: dict[str, Any] = {
    "Name": "jsonpath",
    "Book": [
        {"Author": "Nigel Rees", "Price": 8.95},
        {"Author": "Evelyn Waugh", "Price": 12.99},
        {"Author": "Herman Melville", "Price": 8.99},
    ],
    "Bicycle": [{"Color": "red", "Price": 19.95, "IsNew": True}, {"Color": "green", "Price": 20.01, "IsNew": False}],
    "Labels": {"engieer": 10, "web/html": 15, "k8s-app": 20},
}
POINTS: list[Any] = [
    {"id": "i1", "x": 4, "y": -5},
    {"id": "i2", "x": -2, "y": -5, "z": 1},
    {"id": "i3", "x": None, "y": 2, "z": 1},
]
NESTED: dict[str, Any] = {
    "items": [
        {"metadata": {"name": "pod1"}, "spec": {"containers": [{"name": "foo"}, {"name": "bar"}]}},
        {"metadata": {"name": "pod2"}, "spec": {"containers": [{"name": "baz"}]}},
        {"metadata": {"name": "pod3"}, "spec": {"containers": []}},
    ]
}
MAPS = {"integers": [1, 2, 3, 4], "map": {"b": "<1>", "a": [True, None]}, "strings": ["one", "two", "three", "four"]}


@pytest.mark.parametrize(
    ("value", "template", "shown"),
    [
        (NODES, "{range .items[*]}{.metadata.name}, {end}{.kind}", "127.0.0.1, 127.0.0.2, List"),
        (NODES, '{range .items[*]}{.metadata.name}{"\\t"}{end}', "127.0.0.1\t127.0.0.2\t"),
        (NODES, "{.items[*].status.addresses[*].address}", "127.0.0.1 127.0.0.2 127.0.0.3"),
        (
            NODES,
            "{range .items[*]}{range .status.addresses[*]}{.address}, {end}{end}",
            "127.0.0.1, 127.0.0.2, 127.0.0.3, ",
        ),
        (
            NODES,
            "{.items[*]['metadata.name', 'status.capacity']}",
            '127.0.0.1 127.0.0.2 {"cpu":"4"} {"cpu":"8"}',
        ),
        (
            NODES,
            "{range .items[*]}[{.metadata.name}, {.status.capacity}] {end}",
            '[127.0.0.1, {"cpu":"4"}] [127.0.0.2, {"cpu":"8"}] ',
        ),
        (NODES, '{.users[?(@.name=="e2e")].user.password}', "secret"),
        (NODES, "{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        (NODES, '{.items[?(@.metadata.labels.kubernetes\\.io/hostname=="127.0.0.1")].kind}', "None"),
        (NODES, "{.items[?(@..ready==true)].metadata.name}", "127.0.0.1"),
        (NODES, "{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        (STORE, "hello {.Name}", "hello jsonpath"),
        (STORE, "hello jsonpath", "hello jsonpath"),
        (STORE, '{"{"}', "{"),
        (STORE, "{$.Labels.web/html}", "15"),
        (STORE, "{.Labels.k8s-app}", "20"),
        (STORE, "{.Bicycle[*].Color}", "red green"),
        (STORE, '{range .Bicycle[*]}{ "{" }{ @.* }{ "} " }{end}', "{red 19.95 true} {green 20.01 false} "),
        (STORE, "{..Price}", "8.95 12.99 8.99 19.95 20.01"),
        (STORE, "{...Price}", "8.95 12.99 8.99 19.95 20.01"),
        (STORE, "{.Book[-1:]}", '{"Author":"Herman Melville","Price":8.99}'),
        (STORE, "{..Book[2]}", '{"Author":"Herman Melville","Price":8.99}'),
        (STORE, "{.Bicycle[?(@.IsNew==true)].Color}", "red"),
        (STORE, "{.Book[?(@.Price<9.0)].Author}", "Nigel Rees Herman Melville"),
        (STORE, "before-{.hello}after", "before-after"),
        ([2, 6, 3, 7], "{[?(@<5)]}", "2 3"),
        ([0, 1, 2, 3, 4], "{[1,3,4]}", "1 3 4"),
        ([1, 2, 3], "{..}", "[1,2,3]"),
        (POINTS, "{[?(@.z)].id}", "i2 i3"),
        (POINTS, "{[0]['id']}", "i1"),
        (POINTS, "{[-1]['x']}", "null"),
        (
            NESTED,
            '{range .items[*]}{.metadata.name}{":"}{range @.spec.containers[*]}{.name}{","}{end}{"+"}{end}',
            "pod1:foo,bar,+pod2:baz,+pod3:+",
        ),
        ({"items": []}, "{range .items[*]}{.metadata.name}{end}", ""),
        (MAPS, "{ .integers }", "[1,2,3,4]"),
        (MAPS, "{ .integers[-2] }", "3"),
        (MAPS, "{ .integers[:2] }", "1 2"),
        (MAPS, "{ .integers[:4:2] }", "1 3"),
        (MAPS, "{ .strings[1::2] }", "two four"),
        (MAPS, "{.map}", '{"a":[true,null],"b":"\\u003c1\\u003e"}'),
        (MAPS, "{.map.b}", "<1>"),
    ],
    ids=str,
)
def test_a_template_gives_what_kubectl_gives(value: object, template: str, shown: str) -> None:
    assert parse_template(template).render(value) == shown
    assert parse_template(template).render(json.loads(json.dumps(value))) == shown


@pytest.mark.parametrize(
    ("value", "template", "rule"),
    [
        (STORE, "{hello}", "unrecognized identifier hello"),
        (STORE, "{.Labels[0]}", "is not an array"),
        (STORE, "{.Book[?(@.Price<>10)]}", "unrecognized filter operator <>"),
        (STORE, "{range .Labels.*}{@}{end}{end}", "not in range, nothing to end"),
        (STORE, "{............Price}", "invalid multiple recursive descent"),
        (STORE, "{.Book[9]}", "array index out of bounds"),
        (STORE, "{.Book[?(@.Price==\"10\")]}", "incompatible types for comparison"),
        (STORE, "{.Book[}", "unterminated array"),
        (STORE, "{.Book[?(@.Price}", "unterminated filter"),
        (STORE, '{"a}', "unterminated quoted string"),
        (STORE, "{.Book", "unclosed action"),
        (STORE, "{.Book[abc]}", "invalid array index"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_template_is_refused_with_its_rule(value: object, template: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_template(template).render(value)
    assert rule in error.value.rule


@pytest.mark.parametrize("path", ["a.b", ".a.b", "{a.b}", "{.a.b}"])
def test_a_path_may_miss_its_braces_and_its_first_dot(path: str) -> None:
    assert parse_path(path).find({"a": {"b": 3}}) == [3]
    assert parse_path(path).find({"a": {}}) == []
