"""Files of the host: the installed versions, and the links that say which one runs and where the kubelet goes.

    versions/<version>/   one version; it appears when it is complete
    current               the version that systemd starts
    confirmed             the last version that systemd has reported as started
    cri.sock              the socket for the kubelet: the proxy's, or the runtime's

A link is replaced by a rename, so it always leads somewhere.
"""

import os
import shutil
from pathlib import Path


class Host:
    """The files of one host, whose file system lies at `root`. Paths are those of the host."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = self.at(folder)

    def at(self, path: Path) -> Path:
        """The path at which the installer sees a path of the host."""
        return self._root / path.relative_to("/")

    def version(self, name: str) -> Path:
        return self._folder / "versions" / name

    def link(self, name: str) -> str | None:
        """The version (`current`, `confirmed`) or absolute path (`cri.sock`) that a link leads to; None without it."""
        try:
            target = (self._folder / name).readlink()
        except FileNotFoundError:
            return None
        return str(target) if target.is_absolute() else target.name

    def lead(self, name: str, target: str | Path) -> bool:
        """Point a link to a version (a text) or to an absolute path. Return whether its target has changed."""
        path = self._folder / name
        wanted = target if isinstance(target, Path) else Path("versions") / target
        if path.is_symlink() and path.readlink() == wanted:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{name}.part")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(wanted)
        fresh.replace(path)
        return True

    def unlink(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def has(self, path: Path, text: str) -> bool:
        """Whether a file exists with exactly this text."""
        file = self.at(path)
        return file.exists() and file.read_bytes() == text.encode()

    def write(self, path: Path, text: str) -> bool:
        """Return whether the text has changed. The folder must exist."""
        if self.has(path, text):
            return False
        file = self.at(path)
        fresh = file.with_name(f".{file.name}.part")
        with fresh.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
        return True

    def forget_versions(self, *kept: str | None) -> None:
        """Delete all installed versions except the given ones, and the links to deleted versions."""
        for path in (self._folder / "versions").glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)
        for name in ("current", "confirmed"):
            if not (self._folder / name).exists():
                self.unlink(name)
