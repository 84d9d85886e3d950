"""Write the Helm chart into a folder, with templates made from the manifests of the kustomizations: `make chart`.

`k8s/base`, `k8s/nodes` and the overlays are the only source of the objects. A template is a manifest with its
namespace, in which `HOLES` replaces texts by values. Each text must occur as often as it says, so a change of a
manifest that would lose a value ends the build. A test compares what Helm and kustomize render, object by object.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

K8S: Final = Path(__file__).parents[1]
SYSTEM, NODES = "koordinator-system", "koordinator-nodes"
OWN_FILES: Final = ("Chart.yaml", "values.yaml", "values.schema.json")
NAMESPACED: Final = ("overlays/", "mirror/")
"""Folders whose manifests name their namespaces; the others get theirs from their kustomization."""
CLUSTER_SCOPED: Final = (
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "PriorityClass",
    "FlowSchema",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


class Hole(NamedTuple):
    """A text of a manifest that a value replaces.

    Attributes:
        text: Regular expression; it must match `times` times.
        template: Its replacement, a template of Helm.
    """

    text: str
    template: str
    times: int = 1


def _resources(value: str) -> Hole:
    """Return the hole for the resources of the last container of a manifest."""
    block = r"(?s)(?<=\n          resources:\n)(?:            [^\n]*\n)+(?!.*\n          resources:)"
    return Hole(block, f"{{{{- toYaml .Values.{value} | nindent 12 }}}}\n")


def _replicas(service: str) -> Hole:
    return Hole(r"(?<=\n  replicas: )\d+(?: +#.*)?", f"{{{{ .Values.{service}.replicas }}}}")


IMAGE: Final = Hole(r"(?<=image: )koordstream:latest", "{{ .Values.image }}")
CRITICAL: Final = Hole(
    r"      priorityClassName: system-cluster-critical\n",
    "      {{- if .Values.clusterCritical }}\n      priorityClassName: system-cluster-critical\n      {{- end }}\n",
)
LOG_SIZE: Final = Hole(r"(?<=--log-size=)2Gi", "{{ .Values.nats.logSize }}")
_SERVERS: Final = r"(?: +- --server=nats-\d\.nats\.koordinator-system\.svc\n){3}"
_EACH_SERVER: Final = """\
            {{- range until (int .Values.nats.servers) }}
            - --server=nats-{{ . }}.nats.koordinator-system.svc
            {{- end }}
"""
_MIRROR: Final = """\
            {{- with .Values.nats.mirror }}
            - --mirror={{ . }}
            {{- end }}
"""
_BY_OPERATOR: Final = 'eq .Values.postgres.mode "operator"'
_POSTGRES_HOST: Final = (
    '{{ get (dict "external" .Values.postgres.host "operator" "koord-postgres-rw.koordinator-system.svc")'
    ' .Values.postgres.mode | default "postgres.koordinator-system.svc" }}'
)
_TO_OUR_POSTGRES: Final = """
      {{- if has .Values.postgres.mode (list "operator" "pod") }}
      to: [{podSelector: {matchLabels: {koord-app: postgres}}}]
      {{- end }}"""


def _each_address(value: str) -> str:
    """Return the template of the peers of a NetworkPolicy, one for each address in a value."""
    return f"""\
        {{{{- range .Values.{value} }}}}
        - ipBlock: {{cidr: {{{{ quote . }}}}}}
        {{{{- end }}}}
"""


HOLES: Final[dict[str, tuple[Hole, ...]]] = {
    "base/manager.yaml": (
        IMAGE._replace(times=2),
        CRITICAL,
        _replicas("manager"),
        Hole(r"(?<=args: \[)--replicas=3(?=, --log-size)", '"--replicas={{ .Values.nats.servers }}"'),
        LOG_SIZE,
        _resources("manager.resources"),
    ),
    "base/scheduler.yaml": (IMAGE, CRITICAL, _replicas("scheduler"), _resources("scheduler.resources")),
    "base/descheduler.yaml": (IMAGE, CRITICAL, _replicas("descheduler"), _resources("descheduler.resources")),
    "base/projector.yaml": (
        IMAGE,
        Hole(r"(?<=value: )postgres\.koordinator-system\.svc", _POSTGRES_HOST),
        Hole(
            r"(?<=secretName: )koord-postgres\b",
            f'{{{{ {_BY_OPERATOR} | ternary "koord-postgres-app" "koord-postgres" }}}}',
        ),
        Hole(
            r"(?<=secretName: )koord-projector(?=\n            defaultMode: 0440\n            items:)",
            "{{ .Values.postgres.authority }}",
        ),
        _resources("projector.resources"),
    ),
    "base/issuer.yaml": (IMAGE, CRITICAL, _replicas("issuer")),
    "base/keys.yaml": (IMAGE, CRITICAL, LOG_SIZE, Hole(_SERVERS, _EACH_SERVER), Hole(r"(?<=- --issuer\n)", _MIRROR)),
    "base/nats.yaml": (
        CRITICAL,
        Hole(r"(?<=image: )nats:\S+", "{{ .Values.natsImage }}"),
        Hole(r"(?<=image: )natsio/\S+", "{{ .Values.natsReloaderImage }}"),
        Hole(r"(?<=\n  replicas: )3", "{{ .Values.nats.servers }}"),
        Hole(r"(?<=storage: )10Gi(?: +#.*)?", "{{ .Values.nats.storage }}"),
        Hole(
            r"(?<=\n          resources:\n)(?:            [^\n]*\n)+(?=          securityContext: &hardened)",
            "{{- toYaml .Values.nats.resources | nindent 12 }}\n",
        ),
    ),
    "base/nightly.yaml": (
        Hole(r"(?<=image: )nats:\S+", "{{ .Values.natsImage }}"),
        IMAGE._replace(times=5),
        Hole(r"(?<=storage: )50Gi(?: +#.*)?", "{{ .Values.backups.storage }}"),
    ),
    "base/network-policies.yaml": (
        Hole(r"        - ipBlock: \{cidr: 192\.0\.2\.1/32\}\n", _each_address("apiServerCidrs")),
        Hole(r"(?<=koord-keys, koord-issuer)(?=\])", f"{{{{ if {_BY_OPERATOR} }}}}, postgres{{{{ end }}}}"),
        Hole(r"(?<=\{port: 5432, protocol: TCP\})", _TO_OUR_POSTGRES),
    ),
    "mirror/network-policy.yaml": (
        Hole(r"        - ipBlock: \{cidr: 192\.0\.2\.2/32\}\n", _each_address("nats.mirrorCidrs")),
    ),
    "overlays/operator/postgres.yaml": (Hole(r"(?<=size: )20Gi", "{{ .Values.postgres.storage }}"),),
    "nodes/agent.yaml": (IMAGE._replace(times=2), _resources("nodes.agentResources")),
    "nodes/criproxy.yaml": (
        IMAGE._replace(times=2),
        Hole(r"(?<=--remote-runtime-service-endpoint=)\S+", "{{ .Values.nodes.runtimeEndpoint }}", times=2),
    ),
    "nodes/devicediscovery.yaml": (IMAGE,),
}
CONDITIONS: Final = {
    "base/disruption-budgets.yaml": ".Values.disruptionBudgets",
    "mirror/network-policy.yaml": ".Values.nats.mirror",
    "overlays/dev/postgres.yaml": 'eq .Values.postgres.mode "pod"',
    "overlays/operator/postgres.yaml": _BY_OPERATOR,
}
NODES_CONDITION: Final = ".Values.nodes.enabled"


class HoleMissing(Exception):
    """Raised if a text that a value should replace does not occur in its manifest as often as expected."""


def template(name: str, text: str) -> str:
    """Return the template of a manifest.

    Args:
        name: Path of the manifest below `k8s`.
        text: Its text.

    Raises:
        HoleMissing: A text of `HOLES` does not occur as often as expected.
    """
    for hole in HOLES.get(name, ()):
        text, found = re.subn(hole.text, lambda _, hole=hole: hole.template, text)
        if found != hole.times:
            raise HoleMissing(f"k8s/{name}: {hole.text!r} must match {hole.times} times, and matches {found} times")
    if not name.startswith(NAMESPACED):
        namespace = NODES if name.startswith("nodes/") else SYSTEM
        text = "\n---\n".join(_with_namespace(document, namespace) for document in text.split("\n---\n"))
    condition = NODES_CONDITION if name.startswith("nodes/") else CONDITIONS.get(name)
    return text if condition is None else f"{{{{- if {condition} }}}}\n{text.rstrip()}\n{{{{- end }}}}\n"


def _with_namespace(document: str, namespace: str) -> str:
    kind = re.search(r"^kind: (\S+)$", document, re.MULTILINE)
    if kind is None or kind[1] in CLUSTER_SCOPED:
        return document
    return re.sub(r"^(metadata:\n  name: \S+)", rf"\g<1>\n  namespace: {namespace}", document, flags=re.MULTILINE)


def _resource_files(folder: str) -> Iterator[str]:
    """Yield the manifests that a kustomization lists, as paths below `k8s`."""
    text = (K8S / folder / "kustomization.yaml").read_text(encoding="utf-8")
    listed = text.partition("\nresources:\n")[2]
    for line in listed.splitlines():
        entry = re.fullmatch(r"  - (\S+)", line)
        if entry is None:
            return
        if entry[1].endswith(".yaml"):
            yield f"{folder}/{entry[1]}"


def build(folder: Path) -> None:
    """Write the chart into a folder, whose earlier content is removed.

    Raises:
        HoleMissing: A manifest has changed, and `HOLES` was not.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "templates").mkdir(parents=True)
    shutil.copytree(K8S.parent / "schemas" / "crds", folder / "crds")
    for name in OWN_FILES:
        shutil.copyfile(K8S / "chart" / name, folder / name)
    for kustomization in ("base", "nodes", "mirror", "overlays/dev", "overlays/ha", "overlays/operator"):
        for name in _resource_files(kustomization):
            made = template(name, (K8S / name).read_text(encoding="utf-8"))
            (folder / "templates" / name.replace("/", "-")).write_text(made, encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
