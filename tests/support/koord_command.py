"""The `koord` command on a stack of its own, as a test runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from koordcore.embedded.stack import Stack, read_stack


class KoordCommand:
    """The command on a stack of its own.

    Args:
        var: Folder of the stack.
    """

    def __init__(self, var: Path) -> None:
        self.var = var

    def run(self, *words: str, stdin: str = "", status: int = 0) -> str:
        """Standard output of a command that ends with this status."""
        return self.said(*words, stdin=stdin, status=status)[0]

    def status(self, *words: str) -> int:
        """Exit status of a command."""
        return self._done(*words).returncode

    def said(self, *words: str, stdin: str = "", status: int = 0) -> tuple[str, str]:
        """Standard output and standard error."""
        done = self._done(*words, stdin=stdin)
        assert done.returncode == status, f"koord {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout, done.stderr

    def _done(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "koordctl", *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
            env={**os.environ, "KOORD_VAR": str(self.var)},
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def ask(self, *words: str) -> Any:
        """The decoded JSON of a command."""
        return json.loads(self.run(*words, "-o", "json"))

    def stack(self) -> Stack:
        """The running stack."""
        stack = read_stack(self.var / "run" / "stack.json")
        assert stack is not None
        return stack

    def phase(self, pod: str) -> str:
        """Phase of a pod."""
        return str(self.ask("get", "pod", pod).get("status", {}).get("phase", ""))
