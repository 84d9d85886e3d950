"""Free ports: no other process takes the port of a server that is being restarted."""

import subprocess
import sys

from koordcore.embedded.ports import BLOCK_PORTS, MOST_BLOCKS, free_ports

MANY = 3 * BLOCK_PORTS
_OTHER = f"""
import sys
from koordcore.embedded.ports import free_ports
print(*[port for _ in range({MANY} // 50) for port in free_ports(50)], flush=True)
sys.stdin.read()
"""


def test_two_processes_never_get_the_same_port() -> None:
    with subprocess.Popen([sys.executable, "-c", _OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = {port for _ in range(MANY // 50) for port in free_ports(50)}
        other.communicate()
    assert len(theirs) == len(ours) == MANY
    assert not ours & theirs


def test_ports_are_used_again_when_a_process_has_used_all_of_its_own() -> None:
    wanted = (MOST_BLOCKS + 1) * BLOCK_PORTS
    assert len({port for _ in range(wanted // 100) for port in free_ports(100)}) < wanted
