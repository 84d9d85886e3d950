"""Texts from outside are decoded within limits: only a few modules may use a decoder without."""

import re
from pathlib import Path
from typing import Final

from support.sources import ROOT

SOURCES: Final = [*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src")]
DOORS: Final = {
    "koordcore/values/yaml_text.py": "the door of YAML",
    "koordcore/protocol/lenient_json.py": "the door of JSON in annotations and ConfigMaps",
    "koordcore/values/text_limits.py": "finds the place of a repeated key, after the check",
}
OURS: Final = {
    "koordcore/bus/backup.py": "answers of the NATS server",
    "koordcore/bus/client/connection.py": "answers of the NATS server",
    "koordcore/bus/client/wire.py": "answers of the NATS server",
    "koordcore/bus/setup/bootstrap.py": "answers of the NATS server",
    "koordcore/bus/setup/installation.py": "a file that the installation wrote",
    "koordcore/bus/setup/issuing.py": "the issuer's own file, and a token of some kB that it checks",
    "koordcore/bus/setup/moving.py": "a file that the installation wrote",
    "koordctl/access/clients.py": "answers of our services",
    "koordctl/access/credentials.py": "a file that the login wrote",
    "koordctl/completing.py": "a file of the package",
    "koordctl/installation/tokens.py": "a token of the user himself",
    "koordctl/node/machine.py": "output of our agent",
    "koordctl/sketches.py": "a file of the package",
    "koordctl/stack/kubernetes/kubelets.py": "output of our programs",
    "koord_agent/shell/hooks/traffic_control.py": "output of ip and tc",
    "koord_manager/shell/gateway/api.py": "a message of the API server, and a body of our own",
}  # fmt: skip
_DECODES: Final = re.compile(r"\byaml\.(?:full_|unsafe_|safe_)?(?:load|compose|parse|scan)\w*\(|\bjson\.loads?\(")


def test_only_known_modules_decode_without_limits() -> None:
    found = {
        str(file.relative_to(folder)): file for folder in SOURCES for file in folder.rglob("*.py") if _decodes(file)
    }
    assert sorted(found) == sorted({**DOORS, **OURS})


def _decodes(file: Path) -> bool:
    return _DECODES.search(file.read_text(encoding="utf-8")) is not None
