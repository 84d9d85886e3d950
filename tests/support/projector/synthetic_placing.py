"""Where a load of the synthetic cluster fits, how good a machine is for it, and what it then holds."""

from collections.abc import Sequence

from koordcore.events.pod import NodeScore, PluginExclusion
from support.projector.synthetic_machines import Load, Machine, hash_text


def feasible_machines(machines: Sequence[Machine], load: Load) -> tuple[list[Machine], list[PluginExclusion]]:
    """The machines that a load fits on, and what excludes the others."""
    feasible: list[Machine] = []
    cordoned = 0
    reasons: dict[str, int] = {}
    for machine in machines:
        if machine.unschedulable:
            cordoned += 1
            continue
        if load.qos == "BE":
            cpu, memory = (
                machine.batch_cpu - machine.batch_cpu_held,
                machine.batch_memory - machine.batch_memory_held,
            )
            names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
        else:
            cpu, memory = machine.cpu - machine.cpu_held, machine.memory - machine.memory_held
            names = ("cpu", "memory")
        if load.gpus > machine.gpus - machine.gpus_held:
            reason = "Insufficient nvidia.com/gpu"
        elif load.cpu > cpu:
            reason = f"Insufficient {names[0]}"
        elif load.memory > memory:
            reason = f"Insufficient {names[1]}"
        else:
            feasible.append(machine)
            continue
        reasons[reason] = reasons.get(reason, 0) + 1
    exclusions: list[PluginExclusion] = []
    if cordoned:
        exclusions.append(PluginExclusion("NodeUnschedulable", cordoned, {"node(s) were unschedulable": cordoned}))
    if reasons:
        exclusions.append(PluginExclusion("NodeResourcesFit", sum(reasons.values()), reasons))
    return feasible, exclusions


def score(load: Load, machine: Machine) -> NodeScore:
    """How good a machine is for a load."""
    if load.qos == "BE":
        free = 1 - (machine.batch_cpu_held + load.cpu) / max(1, machine.batch_cpu)
    else:
        cpu = 1 - (machine.cpu_held + load.cpu) / machine.cpu
        memory = 1 - (machine.memory_held + load.memory) / machine.memory
        free = (cpu + memory) / 2
    parts = {
        "NodeResourcesFit": int(100 * free),
        "TaintToleration": 100 if not machine.gpus or load.gpus else 40,
        "ImageLocality": hash_text(f"{machine.name}/{load.namespace}") % 60,
    }
    return NodeScore(machine.name, sum(parts.values()), parts)


def hold(load: Load, machine: Machine, sign: int) -> None:
    """Hold what a load requests of a machine (sign 1), or give it back (sign -1)."""
    if load.qos == "BE":
        machine.batch_cpu_held += sign * load.cpu
        machine.batch_memory_held += sign * load.memory
    else:
        machine.cpu_held += sign * load.cpu
        machine.memory_held += sign * load.memory
        machine.gpus_held += sign * load.gpus
