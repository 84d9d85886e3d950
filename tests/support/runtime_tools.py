"""Programs that `make test-runtime` builds with Go: containerd 2 with its shim, and crictl."""

from pathlib import Path

TOOLS = Path(__file__).parents[2] / "var" / "runtime-tools"
CONTAINERD = TOOLS / "containerd"
CRICTL = TOOLS / "crictl"


def missing_tool() -> str:
    """Why the programs are not there; "" if they are."""
    absent = [path.name for path in (CONTAINERD, CRICTL) if not path.exists()]
    return f"no {', '.join(absent)} in {TOOLS}: `make test-runtime` builds them where Go is installed" if absent else ""
