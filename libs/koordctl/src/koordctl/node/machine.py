"""`koord node`: this machine as a node."""

import json
import subprocess
import sys
from typing import Annotated, Any, Final

import typer

from koordctl.render.output import Format, fail, show_document, show_table, write_line
from koordctl.stack.nodes import host_manifest, host_node_name

app = typer.Typer(no_args_is_help=True, help="Show what an agent can measure and set on this machine.")

_PATIENCE_SECONDS: Final = 30.0


@app.command()
def doctor(
    output: Annotated[Format, typer.Option("-o", "--output", help="table (for people), json or yaml.")] = Format.TABLE,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only protections and features that cannot be used.")
    ] = False,
    cgroup_root: Annotated[
        str, typer.Option(help="Mount point of the cgroup file systems; default: that of an agent here.")
    ] = "",
    proc_root: Annotated[str, typer.Option(help="Mount point of procfs; default: that of an agent here.")] = "",
    sys_root: Annotated[str, typer.Option(help="Mount point of sysfs; default: that of an agent here.")] = "",
    flags: Annotated[
        list[str] | None, typer.Argument(help="Flags of the agent, after --, such as --containerd-endpoint=PATH.")
    ] = None,
) -> None:
    """Show what this machine's kernel, CPU and permissions let an agent do: each protection, then each feature.

    A protection is `available`, its feature gate is off, the kernel refuses it, or it does not exist here. Whether it
    is in force also depends on the NodeSLO.

    Nothing is started and nothing is written. Run it as the user that will run the agent. In the container of an agent,
    it looks where the machine is mounted.

    Examples:

      koord node doctor

      koord node doctor --missing

      koord node doctor -o json

      koord node doctor -- --kubelet-cgroup-root=/kubelet --containerd-endpoint=/run/k3s/containerd/containerd.sock
    """
    command = [sys.executable, "-m", "koord_agent", "doctor"]
    roots = {"cgroup-root": cgroup_root, "proc-root": proc_root, "sys-root": sys_root}
    command += [*(f"--{name}={path}" for name, path in roots.items() if path), *(flags or ())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        fail(f"examining the machine took longer than {_PATIENCE_SECONDS:g} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["the agent is not installed"])[-1]
        fail(last.removeprefix("koord-agent doctor: "))
    found: dict[str, Any] = json.loads(done.stdout)
    if missing:
        found["findings"] = [finding for finding in found["findings"] if not finding["usable"]]
        found["protections"] = [one for one in found["protections"] if one["state"] != "available"]
    if output is not Format.TABLE:
        show_document(found, output)
        return
    write_line(
        f"{found['node']}: kernel {found['kernel']}, cgroup v{found['cgroup_version']}, "
        f"{found['cgroup_driver']} names of directories"
    )
    show_table(
        ("protection", "state", "gate", "setting", "reason"),
        (
            (one["protection"], one["state"], one["gate"], one["setting"] or "-", one["why"])
            for one in found["protections"]
        ),
        empty="every protection is available",
    )
    write_line("")
    show_table(
        ("feature", "usable", "file", "reason"),
        (
            (finding["feature"], "yes" if finding["usable"] else "no", finding["file"] or "-", finding["why"])
            for finding in found["findings"]
        ),
        empty="everything can be used",
    )


@app.command()
def manifest(
    name: Annotated[str | None, typer.Argument(help="Name of the node; default: the name of this machine.")] = None,
) -> None:
    """Print this machine as a Node, with a taint that keeps away pods that do not tolerate it.

    No kubelet starts containers here: an agent only measures the machine.

    Examples:

      koord node manifest

      koord node manifest this-host | koord apply -f -
    """
    show_document(host_manifest(name or host_node_name()), Format.YAML)
