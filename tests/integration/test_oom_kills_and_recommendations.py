"""From the kernel's counter to the recommended memory: an agent's reports teach the recommender of kills."""

from datetime import UTC, datetime

from koord_agent.domain.node.pods import agent_pod_of_ledger
from koord_manager.domain.controllers.recommender.book import RecommenderBook
from koordcore.events.node_ledger import pod_on_node
from koordcore.values.timestamps import rfc3339
from support.agent.simulated import simulated_agent
from support.manager.world import ManagerWorld

LIMIT = 512 << 20
SELECTOR = {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}


def learnt_peak(*, memory: float) -> float:
    """The largest sample of memory of a pod with a limit of 512 MiB that needs `memory` times as much."""
    world = ManagerWorld()
    world.plain_node()
    meta = {"namespace": "default", "name": "web"}
    world.custom("recommendations", {"kind": "Recommendation", "metadata": meta, "spec": {"target": SELECTOR}})
    resources = {"requests": {"cpu": "1", "memory": str(LIMIT)}, "limits": {"memory": str(LIMIT)}}
    usage = f'{{"profile": "constant", "memory": {memory}}}'
    document = {
        "metadata": {"labels": {"app": "web"}, "annotations": {"simulation.koordstream.io/usage": usage}},
        "spec": {"containers": [{"name": "app", "resources": resources}]},
        "status": {"phase": "Running"},
    }
    pod = world.pod("u", document, on="n")
    fleet, agent = simulated_agent({"u": agent_pod_of_ledger(pod_on_node("u", pod))})
    begin_ms = int(world.now.timestamp() * 1000)
    for second in range(1, 61):
        fleet.advance(float(second))
        agent.run_cycle(begin_ms + second * 1_000)
    report = agent.report(begin_ms + 60_000, lambda ms: rfc3339(datetime.fromtimestamp(ms / 1000, UTC)))
    assert report is not None
    book = RecommenderBook()
    book.observe(world.view, 1, "n", report)
    (model,) = [model for key, model in book.models.items() if key.container == "app"]
    return model.memory.percentile(1.0)


def test_a_pod_that_is_killed_is_recommended_more_than_its_limit() -> None:
    assert learnt_peak(memory=0.9) < LIMIT
    assert learnt_peak(memory=2.0) > LIMIT + (100 << 20)
