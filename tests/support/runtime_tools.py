"""Programs that `make test-runtime` builds with Go: containerd 2 with its shim, and the kubelet's CRI client."""

from pathlib import Path

TOOLS = Path(__file__).parents[2] / "var" / "runtime-tools"
CONTAINERD = TOOLS / "containerd"
CRI_CLIENT = TOOLS / "criclient"


def missing_tool() -> str:
    """Why the programs are not there; "" if they are."""
    absent = [path.name for path in (CONTAINERD, CRI_CLIENT) if not path.exists()]
    return f"no {', '.join(absent)} in {TOOLS}: `make test-runtime` builds them where Go is installed" if absent else ""
