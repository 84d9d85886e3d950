"""The reader of documentation pages itself."""

import subprocess
import sys
from pathlib import Path

from support.guide import ROOT, Command, Reader

PROGRAM = """
import asyncio, sys
async def main():
    for number in range(100_000):
        print("line", number, flush=True)
        await asyncio.sleep(0)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_a_command_that_follows_ends_by_ctrl_c_although_it_prints_more_than_a_terminal_holds(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    Reader(ROOT, {}).carry_out(Command(f"{sys.executable} {program} --follow", ""))


def test_commands_end_by_ctrl_c_although_a_script_runs_the_tests_in_the_background() -> None:
    ignore, ask = "signal.signal(signal.SIGINT, signal.SIG_IGN)", "print(signal.getsignal(signal.SIGINT).__name__)"
    program = f"import runpy, signal, sys; sys.path.append('tests'); {ignore}; runpy.run_path('conftest.py'); {ask}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "default_int_handler\n"
