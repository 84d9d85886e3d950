"""What the demo tells about the container that it starts on this host."""

from pathlib import Path

from koordctl.demo.real_container import RealContainer, values_of_line
from koordctl.embedded.containers import LONGEST_SOCKET, unusable


def test_values_of_a_line_leave_out_empty_ones_and_match_whole_names() -> None:
    line = "2026-11-23T12:29:46Z stdout F CPUs=0-1 cpu.shares=1024 cpu.max= my.oom_score_adj=7 KOORD_POD=x"
    assert values_of_line(line) == {"CPUs": "0-1", "cpu.shares": "1024", "KOORD_POD": "x"}


def test_sentence_names_every_value_that_is_not_as_decided() -> None:
    found = {"CPUs": "0", "cpu.shares": "2"}
    equal = RealContainer(found=found, decided={"CPUs": "0"})
    assert equal.sentence() == "CPUs 0, cpu.shares 2; as decided"
    different = RealContainer(found=found, decided={"CPUs": "1", "cpu.max": "max/100000"})
    assert different.sentence() == ("CPUs 0, cpu.shares 2; CPUs 0 instead of 1; cpu.max None instead of max/100000")
    assert RealContainer(missing="not root").sentence() == "none: not root"


def test_folder_whose_socket_path_is_too_long_is_unusable() -> None:
    assert unusable(Path("/" + "x" * LONGEST_SOCKET))
