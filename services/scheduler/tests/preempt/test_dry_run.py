"""Sums and plugins agree on who would have to leave a node: the short way never changes an outcome."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.loop.preempt.dry_run import DryRuns
from koord_scheduler.domain.plugins.default_preemption import DefaultPreemption
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Pod
from support.depth import examples
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

APPS = ("kept", "free")
SIZES = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.sampled_from(APPS))


def sized(uid: str, cpu: int, memory: int, priority: int, app: str) -> Pod:
    requests = {"cpu": str(cpu), "memory": f"{memory}Gi"}
    return with_metadata(pod(uid, requests, priority=priority), labels={"app": app})


def filled(pods: Sequence[tuple[int, int, int, str]], nodes: Sequence[tuple[int, int]], budget: int) -> Scheduler:
    log = SmallLog()
    for index, (cpu, memory) in enumerate(nodes):
        log.add_node(node(f"n{index}", cpu=str(cpu), memory=f"{memory}Gi"))
    ref = custom_ref("poddisruptionbudgets", "default", "kept")
    document = {
        "metadata": {"namespace": "default", "name": "kept"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": budget},
    }
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
    scheduler = Scheduler(log)
    for number, (cpu, memory, priority, app) in enumerate(pods):
        log.add_pod(sized(f"p{number}", cpu, memory, priority, app))
    scheduler.run(0.0)
    return scheduler


@settings(max_examples=examples(150))
@given(
    st.lists(SIZES, max_size=12),
    st.lists(st.tuples(st.integers(2, 8), st.integers(2, 8)), min_size=1, max_size=3),
    st.integers(0, 2),
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
    st.booleans(),
)
def test_sums_name_the_victims_that_the_plugins_name(
    pods: list[tuple[int, int, int, str]],
    nodes: list[tuple[int, int]],
    budget: int,
    wanted: tuple[int, int],
    is_rivalled: bool,
) -> None:
    scheduler = filled(pods, nodes, budget)
    state = scheduler.state
    if is_rivalled:
        scheduler.log.add_pod(sized("rival", 1, 1, 9, "free"))
        scheduler.follow()
        state.nominator.nominate(state.pods["rival"], "n0")
    scheduler.log.add_pod(sized("high", *wanted, 9, "free"))
    scheduler.follow()
    high = state.pods["high"]
    assert high.subject is not None
    plugin = DefaultPreemption()
    short, long = (DryRuns(state, high, high.subject, plugin) for _ in range(2))
    assert short.sums_decide
    long.sums_decide = False
    for name in [f"n{index}" for index in range(len(nodes))]:
        row = state.nodes.row(name)
        assert row is not None
        assert short.victims(row) == long.victims(row)


def test_plugins_are_asked_where_they_look_at_more_than_amounts() -> None:
    scheduler = filled([(1, 1, 0, "free")], [(4, 4)], 0)
    ports = [{"containerPort": 80, "hostPort": 80}]
    log, state = scheduler.log, scheduler.state
    log.add_pod(pod("high", {"cpu": "4"}, priority=9, containers=[{"name": "c", "image": "x", "ports": ports}]))
    scheduler.follow()
    high = state.pods["high"]
    assert high.subject is not None
    assert not DryRuns(state, high, high.subject, DefaultPreemption()).sums_decide
