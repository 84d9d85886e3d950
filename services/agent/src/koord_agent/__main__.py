"""`python -m koord_agent`: flags -> compose -> run. With `doctor` as its first word it only examines the machine.

With `mount-resctrl` it only mounts resctrl.
"""

import sys

from koordcore.service.optional_imports import without_optional

with without_optional():
    from koordcore.service.run import run_service

    from koord_agent.compose import compose
    from koord_agent.doctor import run_doctor
    from koord_agent.settings import AgentSettings
    from koord_agent.shell.host.kernel_files import raise_open_files
    from koord_agent.shell.host.resctrl_mount import WORD, run_mount


def main() -> None:
    if sys.argv[1:2] == ["doctor"]:
        sys.exit(run_doctor(sys.argv[2:]))
    if sys.argv[1:2] == [WORD]:
        sys.exit(run_mount(sys.argv[2:]))
    raise_open_files()
    sys.exit(run_service(AgentSettings, compose))


if __name__ == "__main__":
    main()
