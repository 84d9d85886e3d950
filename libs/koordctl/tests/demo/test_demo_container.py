"""What the demo tells about the container that it starts on this host."""

from pathlib import Path

import pytest
from koordctl.demo import real_container
from koordctl.demo.real_container import RealContainer, create_pod_cgroup, values_of_line
from koordctl.stack.containers import LONGEST_SOCKET, image_architecture, unusable


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


def test_the_root_of_all_pods_is_created_again_if_another_demo_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(real_container, "CGROUPS", tmp_path)
    mkdir, removed = Path.mkdir, list[Path]()

    def after_the_other(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if self.name == "podx" and not removed:
            removed.append(self.parent)
            self.parent.rmdir()
        mkdir(self, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", after_the_other)
    create_pod_cgroup("kubepods/podx")
    assert removed == [tmp_path / "kubepods"]
    assert (tmp_path / "kubepods" / "podx").is_dir()


def test_images_have_the_architecture_of_their_machine() -> None:
    assert [image_architecture(each) for each in ("x86_64", "aarch64", "riscv64")] == ["amd64", "arm64", "riscv64"]
