"""The CPUs of the node from the text of lscpu.

Source: agent spec, 4.4.
"""

from koordcore.values.topology import CpuPlace

from koord_agent.domain.kernel.counters import whole_number

COLUMNS = "CPU,NODE,SOCKET,CORE,CACHE,ONLINE"
OFFLINE = "no"


def parse_lscpu(text: str) -> tuple[CpuPlace, ...]:
    """Return the online CPUs in the output of `lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE`.

    They are sorted by NUMA node, socket, core and CPU. A line counts if it has at least 6 fields and integer CPU,
    SOCKET and CORE. NODE `-` is 0. Offline CPUs are left out (D-3).
    """
    places: list[CpuPlace] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 6 or fields[5].lower() == OFFLINE:
            continue
        cpu, node, socket, core = fields[0], "0" if fields[1] == "-" else fields[1], fields[2], fields[3]
        numbers = [whole_number(text) for text in (cpu, node, socket, core)]
        if None not in numbers:
            cpu_id, node_id, socket_id, core_id = (number or 0 for number in numbers)
            places.append(CpuPlace(cpu=cpu_id, core=core_id, socket=socket_id, node=node_id))
    return tuple(sorted(places, key=lambda p: (p.node, p.socket, p.core, p.cpu)))
