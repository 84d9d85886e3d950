"""The programs of a control plane on this machine, and its names and files in a stack. Importing them is cheap."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.embedded.errors import BinaryNotFoundError

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
ADMIN: Final = "admin"
BUILT_FOLDER: Final = "kubernetes-tools"
"""Folder below `var` into which `make test-kubernetes` builds the programs."""


def folder_of(var: Path) -> Path:
    """Folder of the control plane of a stack, below the folder of the stack."""
    return var / "kubernetes"


def admin_kubeconfig(folder: Path) -> Path:
    return folder / f"{ADMIN}.kubeconfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Absolute paths."""

    etcd: Path
    api_server: Path
    controllers: Path


def find_programs(folder: Path | None, *, built: Path) -> Programs:
    """Args:
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
