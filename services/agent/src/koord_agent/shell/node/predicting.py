"""Prediction in the cycles of a node: train once a minute, store checkpoints, predict for every report.

A checkpoint is a file per UID, written to a temporary name and renamed.

Source: agent spec, 8.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from koordcore.values.resources import Amounts

from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.prediction.predictor import NODE_UIDS, PeakPredictor
from koord_agent.domain.prediction.reclaimable import Prediction, ProdPrediction

_UNFINISHED: Final = ".tmp"
_OF_A_POD: Final = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""UID of a pod: that of an API server, or the hash that a kubelet gives to a static pod."""
_MOST_BYTES: Final = 1 << 20
"""Size above which a file cannot be a checkpoint; one with all buckets has 10 KiB."""


class CheckpointFolder:
    """If the disk fails, models are lost, but no cycle fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def restore(self, predictor: PeakPredictor) -> int:
        """Return the number of loaded models. Of the other files, those with the name of a checkpoint are deleted.

        The folder may be shared, so files with other names stay.

        Raises:
            OSError: The folder cannot be created.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        restored = 0
        for file in sorted(self._folder.iterdir()):
            with contextlib.suppress(OSError):
                is_possible = file.is_file() and file.stat().st_size <= _MOST_BYTES
                if is_possible and predictor.restore(file.name, file.read_bytes()):
                    restored += 1
                    continue
            uid = file.name.removesuffix(_UNFINISHED)
            if uid in NODE_UIDS or _OF_A_POD.fullmatch(uid):
                self._delete(file)
        return restored

    def delete_ended(self, predictor: PeakPredictor, pods: Iterable[str]) -> None:
        """Also from the predictor; `pods` are the UIDs of existing pods."""
        self._delete_all(predictor.drop_others(NODE_UIDS.union(pods)))

    def save(self, predictor: PeakPredictor, now: float) -> str | None:
        """Store the models that are due, and delete expired ones. Return a sentence if the disk failed."""
        trouble: str | None = None
        for uid, data in predictor.checkpoints_due(now):
            try:
                unfinished = self._folder / f"{uid}{_UNFINISHED}"
                unfinished.write_bytes(data)
                unfinished.rename(self._folder / uid)
            except (OSError, ValueError) as error:
                # without the name of the file: other models are due a minute later, and the disk is still full
                reason = error.strerror if isinstance(error, OSError) else str(error)
                trouble = f"models of usage are not stored: {reason}"
        self._delete_all(predictor.drop_expired(now))
        return trouble

    def _delete_all(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if "/" not in uid:
                self._delete(self._folder / uid)

    def _delete(self, file: Path) -> None:
        with contextlib.suppress(OSError):
            file.unlink()


class Predicting:
    """Without a folder, models are lost when the process ends."""

    def __init__(self, predictor: PeakPredictor, folder: CheckpointFolder | None = None) -> None:
        self.last: ProdPrediction | None = None
        self._predictor = predictor
        self._folder = folder
        self._is_restored = self._are_ended_deleted = folder is None
        self._trouble: str | None = None

    def learn(self, look: NodeLook) -> str | None:
        """Train the models, and store some of them, if it is due. Return a sentence if the disk failed the last time.

        The first call loads the stored models. Those of other pods are deleted once all pods are known.
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
        """None before the first training, and while a priority class has no model. `now` is a Unix time in seconds."""
        if not self._predictor.synced:
            return None
        self.last = self._predictor.predict(pods, allocatable, annotations, now)
        return self.last.reported
