"""Find the programs of a Kubernetes control plane on this machine."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.embedded.errors import BinaryNotFoundError

from koordctl.embedded.kubernetes.places import API_SERVER, CONTROLLERS, ETCD

BUILT_FOLDER: Final = "kubernetes-tools"
"""Folder below `var` into which `make test-kubernetes` builds the programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Absolute paths of the programs of a control plane."""

    etcd: Path
    api_server: Path
    controllers: Path


def find_programs(folder: Path | None, *, built: Path) -> Programs:
    """Return the programs of a control plane.

    Args:
        folder: Folder that must hold all of them, or None to search PATH and then `built`.
        built: Folder with programs that were built from their sources.

    Raises:
        BinaryNotFoundError: Programs are missing. The message names all of them.
    """
    found: dict[str, Path] = {}
    for name in (ETCD, API_SERVER, CONTROLLERS):
        path = shutil.which(name, path=None if folder is None else str(folder))
        if path is None and folder is None:
            path = shutil.which(name, path=str(built))
        if path is not None:
            found[name] = Path(path).absolute()
    missing = [name for name in (ETCD, API_SERVER, CONTROLLERS) if name not in found]
    if missing:
        where = f"in {folder}" if folder is not None else f"on PATH or in {built}"
        raise BinaryNotFoundError(f"no {', '.join(missing)} {where}; name their folder with --kubernetes-binaries")
    return Programs(etcd=found[ETCD], api_server=found[API_SERVER], controllers=found[CONTROLLERS])
