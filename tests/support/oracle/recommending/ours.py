"""A history as our recommender hears of it: usage reports of a node, and a Recommendation that selects its pods."""

import json
from datetime import UTC, datetime

from koord_manager.domain.controllers.recommender.book import RecommenderBook
from koord_manager.domain.controllers.recommender.decide import container_recommendations
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings
from koordcore.events.observation import ContainerUsage, NodeUsageReported, PodUsage, Usage
from koordcore.events.recommendation import ContainerRecommendation
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import PodSpecState
from koordcore.values.timestamps import rfc3339
from msgspec import convert
from support.manager.world import ManagerWorld
from support.oracle.lines import Document

Recommendations = dict[str, ContainerRecommendation]


def statuses(history: Document) -> list[Recommendations]:
    """Container -> what is recommended, at each event that asks. After each, ours continues in another process."""
    return _Played(history).statuses


class _Played:
    def __init__(self, history: Document) -> None:
        self._world = ManagerWorld()
        self._world.plain_node()
        self._world.custom("recommendations", _recommendation(history["policies"]))
        self._book = RecommenderBook(convert(history["settings"], RecommenderSettings))
        self._pods: dict[str, Pod] = {}
        self._killed_at: dict[tuple[str, str], str] = {}
        self._position = 0
        self.statuses: list[Recommendations] = []
        for event in history["events"]:
            self._play(event)

    def _play(self, event: Document) -> None:
        if created := event.get("created"):
            document = {
                "metadata": {"labels": created["labels"]},
                "spec": {"containers": [{"image": "i", **each} for each in created["containers"]]},
                "status": {"phase": "Running"},
            }
            self._pods[created["uid"]] = self._world.pod(created["uid"], document, on="n")
        elif "deleted" in event:
            self._world.delete_pod(event["deleted"])
            del self._pods[event["deleted"]]
        elif event.get("ask"):
            self._ask()
        else:
            self._report(event)

    def _report(self, event: Document) -> None:
        """An agent repeats in each report when a container was killed last."""
        key = event["pod"], event["container"]
        if "killedAt" in event:
            self._killed_at[key] = _time(event["killedAt"])
        if not {"usage", "killedAt"} & event.keys():
            return
        milli, memory = event.get("usage", (0, 0))
        usage = Usage(milli, memory)
        container = ContainerUsage(name=event["container"], usage=usage, oom_killed_at=self._killed_at.get(key, ""))
        meta = self._pods[event["pod"]].metadata
        pod = PodUsage(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            priority_class="koord-prod",
            qos="LS",
            usage=usage,
            containers=[container],
        )
        self._position += 1
        report = NodeUsageReported(
            updated_at=_time(event["at"]), report_interval_seconds=60, aggregate_duration_seconds=300, pods=[pod]
        )
        self._book.observe(self._world.view, self._position, "n", report)

    def _ask(self) -> None:
        view = self._world.view
        self._book.targets.refresh(view)
        (wanted,) = self._book.targets.all()
        assert not wanted.fault, wanted.fault
        specs = view.state.of_kind(PodSpecState)
        found = container_recommendations(self._book, wanted, [(uid, specs[uid]) for uid in self._pods])
        self.statuses.append({each.name: each for each in found})
        checkpoint, self._book = self._book.checkpoint(), RecommenderBook(self._book.settings)
        assert self._book.restore(checkpoint)


def _recommendation(policies: list[Document]) -> Document:
    by_name = {each["containerName"]: {k: v for k, v in each.items() if k != "containerName"} for each in policies}
    return {
        "apiVersion": "analysis.koordinator.sh/v1alpha1",
        "kind": "Recommendation",
        "metadata": {
            "namespace": "default",
            "name": "web",
            "annotations": {"analysis.koordinator.sh/resource-policy": json.dumps(by_name)},
        },
        "spec": {"target": {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}},
    }


def _time(seconds: float) -> str:
    return rfc3339(datetime.fromtimestamp(seconds, UTC))
