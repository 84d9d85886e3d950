"""Keep the files by which Terway, a network plugin, limits bandwidths.

Source: runtime spec, 3.10.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.network_qos import (
    GLOBAL_FILE,
    PODS_FILE,
    NetworkPod,
    global_bandwidths,
    is_terway_enabled,
    terway_pods,
)
from koord_agent.domain.node.node_look import NodeLook


class TerwayFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: Mapping[str, str] | None = None

    def apply(self, look: NodeLook) -> list[str]:
        """Write Terway's files if the NodeSLO chooses Terway, else remove them. Return errors, one sentence each.

        If a bandwidth is invalid, the files stay as they are.
        """
        wanted: dict[str, str] = {}
        try:
            if is_terway_enabled(look.slo or {}):
                wanted = _texts(look)
            if wanted != self._written:
                self._write(wanted)
                self._written = wanted
        except InvalidInput as error:
            return [f"Terway: its files stay as they were: {error}"]
        except OSError as error:
            return [f"Terway: its files are not written: {error}"]
        return []

    def _write(self, wanted: Mapping[str, str]) -> None:
        if wanted:
            self._folder.mkdir(parents=True, exist_ok=True)
        for name in (GLOBAL_FILE, PODS_FILE):
            path = self._folder / name
            if name not in wanted:
                path.unlink(missing_ok=True)
                continue
            draft = self._folder / f".{name}.tmp"
            draft.write_text(wanted[name])
            draft.replace(path)


def _texts(look: NodeLook) -> dict[str, str]:
    """Raises InvalidInput: A bandwidth of the NodeSLO is invalid."""
    pods = (
        NetworkPod(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            qos_label=pod.qos_label,
            kube_qos=pod.kube_qos,
            annotations=pod.annotations,
            cgroup_dir=look.pod_directory(pod),
        )
        for pod in look.pods
    )
    return {GLOBAL_FILE: global_bandwidths(look.slo or {}), PODS_FILE: json.dumps(terway_pods(pods))}
