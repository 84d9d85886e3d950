"""Names and files of the control plane in a stack, for commands that only look at it. Importing them is cheap."""

from pathlib import Path
from typing import Final

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
ADMIN: Final = "admin"


def folder_of(var: Path) -> Path:
    """Return the folder of the control plane of a stack.

    Args:
        var: Folder of the stack.
    """
    return var / "kubernetes"


def admin_kubeconfig(folder: Path) -> Path:
    """Return the path of the administrator's kubeconfig of the control plane in a folder."""
    return folder / f"{ADMIN}.kubeconfig"
