"""Prediction in the cycles of a node: train once a minute, store checkpoints, predict for every report.

Source: agent spec, 8.
"""

from collections.abc import Mapping, Sequence

from koordcore.values.resources import Amounts

from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.domain.prediction.reclaimable import Prediction, ProdPrediction
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod
from koord_agent.shell.store.checkpoints import CheckpointFolder


class Predicting:
    """Prediction for one node: the predictor, and the folder of its checkpoints.

    Without a folder, models are lost when the process ends.
    """

    def __init__(self, predictor: PeakPredictor, folder: CheckpointFolder | None = None) -> None:
        self.last: ProdPrediction | None = None
        self._predictor = predictor
        self._folder = folder
        self._is_restored = self._are_ended_deleted = folder is None
        self._trouble: str | None = None

    def learn(self, look: NodeLook) -> str | None:
        """Train the usage models, and store some of them, if it is due.

        The first call loads the stored models. Those of other pods are deleted once all pods are known.

        Return a sentence if the disk failed the last time, otherwise None.

        Args:
            look: Snapshot of the node.
        """
        now = look.now_ms / 1000
        if self._folder is not None and not self._is_restored:
            self._is_restored = True
            try:
                self._folder.restore(self._predictor)
            except OSError as error:
                self._folder = None
                self._trouble = f"checkpoints are not stored: {error}"
                return self._trouble
        if self._folder is not None and not self._are_ended_deleted and look.has_all_pods:
            self._are_ended_deleted = True
            self._folder.delete_ended(self._predictor, (pod.uid for pod in look.pods))
        if not self._predictor.is_due(now):
            return self._trouble
        self._predictor.train(look.metrics, look.pods, now)
        if self._folder is not None:
            self._trouble = self._folder.save(self._predictor, now)
        else:
            self._predictor.drop_expired(now)
        return self._trouble

    def predict(
        self, pods: Sequence[AgentPod], allocatable: Amounts, annotations: Mapping[str, str], now: float
    ) -> Prediction | None:
        """Return the prediction for a report; None before the first training, and while a priority class has no model.

        Args:
            pods: The pods of the node.
            allocatable: Allocatable of the node object.
            annotations: Annotations of the node object.
            now: Unix time in seconds.
        """
        if not self._predictor.synced:
            return None
        self.last = self._predictor.predict(pods, allocatable, annotations, now)
        return self.last.reported
