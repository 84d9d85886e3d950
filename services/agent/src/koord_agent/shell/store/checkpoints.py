"""Checkpoints of usage models in a folder: one file per UID, written to a temporary name and renamed.

Source: agent spec, 8.3.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.domain.prediction.training import NODE_UIDS

_UNFINISHED: Final = ".tmp"


class CheckpointFolder:
    """Folder with the usage models of one node. If the disk fails, models are lost, but no cycle fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def restore(self, predictor: PeakPredictor) -> int:
        """Load the stored usage models into the predictor, and return their number. Invalid files are deleted.

        Args:
            predictor: The models of the node.

        Raises:
            OSError: The folder cannot be created.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        restored = 0
        for file in sorted(self._folder.iterdir()):
            if file.is_file():
                with contextlib.suppress(OSError):
                    if predictor.restore(file.name, file.read_bytes()):
                        restored += 1
                        continue
            self._delete(file)
        return restored

    def delete_ended(self, predictor: PeakPredictor, pods: Iterable[str]) -> None:
        """Delete the models of pods that have ended, also from the predictor; `pods` are the UIDs of existing pods."""
        self._delete_all(predictor.drop_others(NODE_UIDS.union(pods)))

    def save(self, predictor: PeakPredictor, now: float) -> str | None:
        """Store the usage models that are due, and delete expired ones.

        Return a sentence if the disk failed, otherwise None.

        Args:
            predictor: The models of the node.
            now: Unix time in seconds.
        """
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
