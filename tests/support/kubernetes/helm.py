"""The Helm chart, and helm to render it."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml
from support.kubernetes.control_plane import ROOT, TOOLS, Answer

Json = dict[str, Any]

DEV: Final = ("--values", "k8s/chart/values-dev.yaml")
HA: Final = ("--set", "apiServerCidrs={192.0.2.1/32}")
OPERATOR: Final = (*HA, "--set", "postgres.mode=operator")
MIRROR: Final = (*HA, "--set", "nats.mirror=dr-nats.example,nats.mirrorCidrs={192.0.2.2/32}")
BASE: Final = (*HA, "--set", "nodes.enabled=false,postgres.mode=none,postgres.authority=koord-projector")


def missing_helm() -> str | None:
    """Return the reason why helm cannot run, or None if it can."""
    return None if (TOOLS / "helm").exists() else "helm not built: `make test-kubernetes` needs Go"


def build_chart(folder: Path) -> Path:
    """Build the chart below a folder, and return its folder."""
    chart = folder / "koordstream"
    subprocess.run([sys.executable, "k8s/chart/build.py", str(chart)], cwd=ROOT, check=True)
    return chart


def helm(*words: str | Path) -> Answer:
    """Run helm and return what it printed."""
    command = [str(TOOLS / "helm"), *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Answer(done.stdout, done.stderr, done.returncode)


def helm_objects(chart: Path, *flags: str) -> list[Json]:
    """Return the objects that the chart renders with flags, the definitions among them."""
    answer = helm("template", "koordstream", chart, "--include-crds", "--kube-version=1.35", *flags)
    assert (answer.code, answer.err) == (0, "")
    return [item for item in yaml.safe_load_all(answer.out) if item]
