"""A manager whose recommender learns from reports, over logs in memory, and the decisions of its log taken again."""

from collections.abc import Sequence

from koord_manager.cycle import run_cycle
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.book import CHECKPOINT_FOLD, RecommenderBook, book_fingerprint
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.recommender.settings import DEFAULT_SETTINGS, RecommenderSettings
from koord_manager.domain.documents.apply import Target
from koord_manager.domain.what_if.run import ManagerWhatIf
from koord_manager.shell.recommender_history import save_checkpoint
from koord_manager.shell.reconcile import Decided, append_decided
from koordcore.bus.adapters.memory import MemoryLog, MemoryObservationLog, MemorySnapshotStore
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Origin, StoredEvent
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.state.aggregates import PodSpecState, PodState
from koordcore.values.timestamps import rfc3339
from support.manager.loops import CONFIG, NODE, Manager, running

GIB = 1 << 30
MINUTE = 60.0


def selecting(name: str, app: str, *annotations: str) -> str:
    metadata = f"{{name: {name}, namespace: shop, annotations: {{{', '.join(annotations)}}}}}"
    target = f"{{type: podSelector, podSelector: {{matchLabels: {{app: {app}}}}}}}"
    return f"""
apiVersion: analysis.koordinator.sh/v1alpha1
kind: Recommendation
metadata: {metadata}
spec: {{target: {target}}}
"""


def pod_of(name: str, app: str, cpu: str = "1") -> str:
    container = f"{{name: c, image: i, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}"
    metadata = f"{{name: {name}, namespace: shop, labels: {{app: {app}}}}}"
    return f"{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {{containers: [{container}]}}}}"


class Story:
    """A manager that learns from the reports of a node, and the log of them."""

    def __init__(self, settings: RecommenderSettings = DEFAULT_SETTINGS) -> None:
        self.log = MemoryLog()
        self.manager = Manager(self.log)
        self.manager.policies.recommender = RecommenderController(RecommenderBook(settings))
        self.observations = MemoryObservationLog()
        self.snapshots = MemorySnapshotStore()

    async def apply(self, *documents: str) -> None:
        results = await self.manager.apply("\n---\n".join(documents))
        assert all(result.action in ("created", "configured") for result in results), results

    async def place(self) -> None:
        """Every pod is on the node."""
        for uid, spec in list(self.manager.view.state.of_kind(PodSpecState).items()):
            if uid in self.manager.view.state.of_kind(PodState):
                continue
            meta = spec.object.metadata
            placed = PodPlaced(
                namespace=meta.namespace,
                name=meta.name,
                node="n.1",
                requests={},
                attempt=1,
                queued_at=rfc3339(self.manager.clock.now()),
                explanation=PlacementExplanation(
                    nodes_considered=1, nodes_feasible=1, policy_version="", based_on=BasedOn()
                ),
            )
            decided = [Decided(uid, [Draft(AggregateRef("pod", uid), placed, 0)])]
            await append_decided(self.manager.context, "test", decided, self.manager.clock.now())

    async def live(self, reports: int, cpu_milli: int, *, every: float = MINUTE) -> None:
        """So many reports of all pods, and a control round after each."""
        view, clock = self.manager.view, self.manager.clock
        await self.place()
        for _ in range(reports):
            now = rfc3339(clock.now())
            pods = [
                PodUsage(
                    uid=uid,
                    namespace="shop",
                    name=spec.object.metadata.name,
                    priority_class="koord-prod",
                    qos="LS",
                    usage=Usage(cpu_milli, GIB),
                )
                for uid, spec in view.state.of_kind(PodSpecState).items()
            ]
            report = NodeUsageReported(
                updated_at=now,
                report_interval_seconds=60,
                aggregate_duration_seconds=300,
                node_usage=Usage(cpu_milli * len(pods), GIB),
                system_usage=Usage(100, GIB),
                pods=pods,
            )
            origin = Origin(causation_id=now, correlation_id="n.1", actor="agent/t", occurred_at=now)
            await self.observations.publish(AggregateRef("node", "n_1"), report, origin)
            position = (await self.observations.head()).last_seq
            view.observe(position, "n_1", report)
            self.manager.policies.recommender.book.observe(view, position, "n_1", report)
            await clock.advance(every)
            await run_cycle(self.manager.context, self.manager.policies)

    async def keep_checkpoint(self) -> None:
        rounds, world = self.manager.policies.recommender, self.manager.context
        now = rfc3339(world.clock.now())
        await save_checkpoint(rounds, self.snapshots, now, world.logger, code_version="t")

    async def checkpoint(self) -> bytes:
        saved = await self.snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=book_fingerprint())
        assert saved is not None
        return b"".join(saved.state)

    def events(self) -> list[StoredEvent]:
        return self.log.between(0, self.log.last_seq, None, self.log.last_seq)

    async def reports(self) -> list[StoredEvent]:
        async for batch in self.observations.follow(0, batch=1_000_000):
            return batch
        return []

    async def again(
        self,
        begin: int = 0,
        *,
        settings: RecommenderSettings | None = None,
        forgotten: int = 0,
        checkpoint: bytes | None = None,
        first: RecommenderSettings | None = None,
    ) -> ManagerWhatIf:
        """forgotten: how many of the oldest reports are not kept any more"""
        reports: Sequence[StoredEvent] = (await self.reports())[forgotten:]
        what_if = ManagerWhatIf(ManagerView(), reports, settings=settings, checkpoint=checkpoint, first=first)
        events = self.events()
        for stored in events[:begin]:
            what_if.before(stored)
        what_if.begin()
        for stored in events[begin:]:
            what_if.see(stored)
        what_if.end()
        return what_if


async def half_an_hour(settings: RecommenderSettings = DEFAULT_SETTINGS) -> Story:
    """Half an hour in which pods come and go, a policy changes, and a Recommendation goes."""
    story = Story(settings)
    async with running(story.manager):
        await story.apply(CONFIG, NODE, pod_of("web-1", "web"), selecting("web", "web"), selecting("x", "other"))
        await story.live(8, 400)
        await story.apply(pod_of("web-2", "web"), pod_of("other-1", "other"))
        await story.live(8, 900)
        await story.keep_checkpoint()
        policy = """analysis.koordinator.sh/resource-policy: '{"*": {"maxAllowed": {"cpu": "700m"}}}'"""
        await story.apply(selecting("web", "web", policy))
        await story.live(4, 900)
        for kind, name in (("Pod", "web-1"), ("Recommendation", "x")):
            [result] = await story.manager.intake.submit([Target(kind, "shop", name)], f"remove {name}")
            assert result.action == "deleted"
        await story.live(8, 100)
    return story
