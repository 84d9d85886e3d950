"""Equal CPU topologies of many nodes are one text in memory."""

from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.protocol import keys
from support.scheduler.numa import add_numa_node
from support.scheduler.scheduling import Scheduler, SmallLog


def topology_texts(state: SchedulerState) -> list[str]:
    """Annotation cpu-topology of every object."""
    return [event.object["metadata"]["annotations"][keys.CPU_TOPOLOGY] for event in state.mirror.objects.values()]


def test_nodes_of_one_model_share_the_text_of_their_topology() -> None:
    log = SmallLog()
    for index in range(3):
        add_numa_node(log, f"n{index}")
    scheduler = Scheduler(log)
    scheduler.run()
    texts = topology_texts(scheduler.state)
    assert len(texts) == 3
    assert len({id(text) for text in texts}) == 1
