"""The declared streams and the comparison of configurations."""

from typing import Any

import pytest
from koordcore.bus.client.connection import USER_INFO
from koordcore.bus.names import BusNames, InvalidName
from koordcore.bus.setup.bootstrap import ServerTooOld, compare, require_version
from koordcore.bus.setup.manifest import EMBEDDED, GENESIS, SCHEDULER, agent
from koordcore.bus.setup.principals import permissions
from koordcore.bus.setup.streams import streams
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef

NAMES = BusNames("c1")


def by_name(replicas: int = 3) -> dict[str, dict[str, Any]]:
    return {spec.name: spec.config() for spec in streams(NAMES, replicas=replicas)}


def test_facts_are_never_forgotten_and_refused_when_full():
    facts = by_name()["KOORD_EV_c1"]
    assert (facts["max_age"], facts["discard"], facts["retention"]) == (0, "new", "limits")
    assert facts["allow_atomic"]
    assert facts["deny_delete"]
    assert (facts["num_replicas"], facts["storage"]) == (3, "file")
    assert facts["duplicate_window"] == 300 * 10**9
    assert facts["republish"] == {"src": "koord.c1.ev.*.*", "dest": "koord.c1.push.{{wildcard(1)}}.{{wildcard(2)}}"}


@pytest.mark.parametrize("replicas", [1, 3])
def test_no_stream_is_compressed(replicas: int):
    assert {config["compression"] for config in by_name(replicas).values()} == {"none"}


def test_observations_age_and_have_one_replica():
    observations = by_name()["KOORD_OBS_c1"]
    assert (observations["max_age"], observations["max_msgs_per_subject"]) == (7200 * 10**9, 180)
    assert (observations["discard"], observations["num_replicas"]) == ("old", 1)


def test_requests_are_a_work_queue():
    assert by_name()["KOORD_CMD_c1"]["retention"] == "workqueue"


def test_the_server_remembers_ids_only_where_messages_are_sent_again():
    second = 10**9
    windows = {name: config["duplicate_window"] for name, config in by_name().items()}
    longer = {name: window for name, window in windows.items() if window > second // 10}
    assert longer == {"KOORD_EV_c1": 300 * second, "KOORD_CMD_c1": 120 * second, "KOORD_DLQ_c1": 120 * second}


def test_a_duplicate_window_never_exceeds_the_age_limit():
    for name, config in by_name().items():
        assert config["max_age"] == 0 or config["duplicate_window"] <= config["max_age"], name


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_age", 1), ("discard", "old"), ("allow_atomic", False), ("subjects", ["x.>"]), ("republish", {"src": "a"})],
)
def test_a_difference_is_found(field: str, value: object):
    wanted = by_name()["KOORD_EV_c1"]
    assert set(compare({**wanted, field: value}, wanted)) == {field}


def test_what_the_server_adds_is_no_difference():
    wanted = by_name()["KOORD_EV_c1"]
    assert compare({**wanted, "metadata": {"x": "y"}, "sealed": False, "placement": None}, wanted) == {}


def test_a_republish_that_nobody_asked_for_is_a_difference():
    wanted = by_name()["KOORD_OBS_c1"]
    assert "republish" in compare({**wanted, "republish": {"src": ">", "dest": "y"}}, wanted)


@pytest.mark.parametrize("version", ["2.11.9", "2.2.0", "1.9.9"])
def test_a_server_without_batches_is_refused(version: str):
    with pytest.raises(ServerTooOld, match=version):
        require_version(version)


@pytest.mark.parametrize("version", ["2.14.0", "2.15.1", "3.0.0"])
def test_a_server_with_batches_is_taken(version: str):
    require_version(version)


@pytest.mark.parametrize("cluster", ["", "a.b", "a b", "*", "a_b", "x" * 41])
def test_a_cluster_id_is_a_short_token(cluster: str):
    with pytest.raises(InvalidName):
        BusNames(cluster)


@pytest.mark.parametrize("id_", ["", "a.b", "a b", "a>", "*", "é", "a\r\nPUB x"])
def test_an_aggregate_that_is_no_token_is_refused(id_: str):
    with pytest.raises(InvalidName):
        NAMES.subject("ev", AggregateRef("pod", id_))


@pytest.mark.parametrize("id_", ["4f1c-9", "ns=gang", "node_a", "A-1"])
def test_tokens_make_a_subject(id_: str):
    assert NAMES.subject("ev", AggregateRef("pod", id_)) == f"koord.c1.ev.pod.{id_}"


def test_every_kind_of_fact_has_exactly_one_kind_of_writer_once_genesis_is_over():
    shared = {"eviction"}  # asked for by who wants the pod gone, answered by the manager
    writers: dict[str, list[str]] = {}
    for manifest in EMBEDDED:
        of_nodes = {"nodestate": manifest.agent_nodes, "criproxy": manifest.proxy_nodes}
        kinds = [*manifest.appends, *(kind for kind, nodes in of_nodes.items() if nodes)]
        for kind in kinds:
            if manifest is not GENESIS or kind == "genesis":
                writers.setdefault(kind, []).append(manifest.name)
    for entry in CATALOGUE:
        if entry.stream == "ev" and entry.kind not in shared:
            assert len(writers.get(entry.kind, [])) == 1, entry.kind


def test_nobody_listens_to_other_inboxes_or_may_do_everything():
    for manifest in EMBEDDED:
        rules = permissions(manifest, NAMES)
        assert f"_INBOX_{manifest.name}.>" in rules.subscribe_allow
        for subject in (*rules.publish_allow, *rules.subscribe_allow):
            assert subject not in (">", "*", "$JS.>", "$JS.API.>", "koord.>"), (manifest.name, subject)
            assert not subject.startswith("_INBOX.")


def test_the_agent_of_a_node_reaches_its_own_subjects_only():
    rules = permissions(agent("n1", name="agent-n1"), NAMES)
    assert all(subject.endswith(".n1") for subject in rules.publish_allow if subject != USER_INFO)
    assert set(rules.subscribe_allow) == {"_INBOX_agent-n1.>", "koord.c1.push.node.n1", "koord.c1.push.nodepolicy.n1"}


def test_the_scheduler_may_not_write_what_others_decide():
    allowed = permissions(SCHEDULER, NAMES).publish_allow
    assert "koord.c1.ev.pod.*" in allowed
    assert not any("podspec" in subject or "nodestate" in subject for subject in allowed)
