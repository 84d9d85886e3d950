"""The files in which a nats-server keeps a stream, and what can happen to them on a disk.

`<directory>/**/streams/<stream>/msgs/` has the messages in `1.blk`, `2.blk` and so on. `index.db` says what they
contain. The server writes it when it stops, and now and then; without it, it reads the blocks.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

KEPT_SHARE: Final = 0.7
"""Share of a file that is left after it was cut."""


def messages_of(directory: Path, stream: str) -> Path:
    """The folder with the blocks of a stream of a server."""
    (found,) = directory.glob(f"**/streams/{stream}/msgs")
    return found


def blocks_of(folder: Path) -> list[Path]:
    """The blocks of a stream in their order."""
    return sorted(folder.glob("*.blk"), key=lambda path: int(path.stem))


def flip_bit(path: Path, *, share: float = 0.5) -> None:
    """Flip one bit in the middle of a file, or at another share of its length."""
    with path.open("r+b") as file:
        at = int(path.stat().st_size * share)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0b100]))


def cut(path: Path) -> None:
    """Keep only the beginning of a file."""
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * KEPT_SHARE))


def empty(path: Path) -> None:
    """Keep the file without its content."""
    with path.open("r+b") as file:
        file.truncate(0)


def delete(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def swap(first: Path, second: Path) -> None:
    """Exchange the contents of two files."""
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


def roll_back(folder: Path, older: Path) -> None:
    """Replace the blocks by those of an older copy of the folder."""
    for path in blocks_of(folder):
        path.unlink()
    for path in blocks_of(older):
        shutil.copyfile(path, folder / path.name)


def forget_index(folder: Path) -> None:
    """Remove the index, as if the server had never written it."""
    (folder / "index.db").unlink(missing_ok=True)


ON_ONE_FILE: Final[dict[str, Callable[[Path], None]]] = {
    "flip one bit": flip_bit,
    "cut to 70 %": cut,
    "empty": empty,
    "delete": delete,
}
"""What can happen to one file."""
