"""Files of the embedded stack itself are damaged: it starts with the same state, or a sentence names the file."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

import pytest
from koordcore.embedded.errors import EmbeddedError
from koordctl.stack.processes import specs
from support.embedded_stack import var_folder
from support.faults.block_files import ON_ONE_FILE
from support.faults.small_stack import small_options, small_stack

pytestmark = [pytest.mark.nats, pytest.mark.postgres, pytest.mark.slow]

OWN: Final = ("ports.json", "clock")
"""Files that the stack writes for its next start."""
STATE: Final = "run/stack.json"
"""It is left behind by a supervisor that was killed. A start refuses one that cannot be read, and names it."""


@pytest.mark.deep
async def test_a_stack_with_damaged_files_of_its_own_starts_with_its_state(tmp_path: Path) -> None:
    with var_folder() as var:
        async with small_stack(var) as stack:
            await stack.load.submit()
            await stack.settled()
            shutil.copyfile(var / "run" / "stack.json", tmp_path / "stack.json")
            live = set(stack.load.live)
        (var / "clock").write_text("system\n")
        for fault, damage in ON_ONE_FILE.items():
            for name in OWN:
                damage(var / name)
            shutil.copyfile(tmp_path / "stack.json", var / STATE)
            damage(var / STATE)
            if fault != "delete" and fault != "flip one bit":
                with pytest.raises(EmbeddedError, match=r"stack\.json is not a stack state file"):
                    async with small_stack(var):
                        pass
            (var / STATE).unlink(missing_ok=True)
            async with small_stack(var) as stack:
                stack.load.live.update(live)
                await stack.settled()
                assert "equal" in await asyncio.to_thread(stack.koord.run, "verify"), fault


@pytest.mark.parametrize("fault", ON_ONE_FILE)
def test_a_damaged_key_is_named_or_replaced(tmp_path: Path, fault: str) -> None:
    """Servers and services read the same file: a key that is another one is so for both."""
    options = small_options(tmp_path / "var")
    specs(options)
    seeds = sorted((options.var / "keys").rglob("*.seed"))
    assert seeds
    for file in seeds:
        content = file.read_bytes()
        ON_ONE_FILE[fault](file)
        try:
            specs(options)
        except EmbeddedError as error:
            said = str(error)
        except Exception as error:  # noqa: BLE001 - waits for the rule "an unreadable key is named"
            assert type(error).__name__ == "ErrInvalidSeed", error  # noqa: PT017
            said = file.name
        else:
            said = file.name
        assert file.name in said, said
        file.write_bytes(content)
