"""The results of a sweep beside the published ones, and its files: CSV for programs, and the curves as a picture.

Equal inputs give equal bytes.

Source: gpu-fragmentation spec, 5.2, 5.3.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from xml.sax.saxutils import escape

from koordctl.demo.trace import InvalidTrace, rows_of
from koordctl.simulate.gpu_run import Outcome
from koordctl.simulate.gpu_sweep import Run, Summary

FILE: Final = "published.csv"

Published: TypeAlias = Mapping[tuple[str, str, int], float]
"""(workload, policy, arrived percent) -> allocation, in percent of the capacity."""
_WIDTH, _HEIGHT = 860, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 170, 40, 50
_COLOURS: Final = ("#9e9e9e", "#b07aa1", "#4e79a7", "#59a14f", "#f28e2b", "#e15759", "#111111")
_FIRST_ARRIVED, _FIRST_ALLOCATED = 80, 80
_FONT: Final = 'font-family="sans-serif" font-size="12"'
_CENTRED: Final = 'text-anchor="middle"'


class Compared(NamedTuple):
    """The allocation that a sweep reached, and the published one for the same policy and workload."""

    summary: Summary  # The result of the sweep
    published: float | None  # The published allocation in percent of the capacity; None: not published

    @property
    def difference(self) -> float | None:
        """In percentage points; None without a published result."""
        return None if self.published is None else abs(self.summary.alloc_mean - self.published)


def read_published(folder: Path) -> Published:
    """Raises:
    InvalidTrace: The file cannot be read or is not valid.
    """
    path = folder / FILE
    found: dict[tuple[str, str, int], float] = {}
    for row in rows_of(path):
        text = row.text("alloc_pct")
        try:
            found[row.text("workload"), row.text("policy"), row.number("arrived_pct")] = float(text)
        except ValueError as error:
            raise InvalidTrace(f"{row.place}: alloc_pct must be a number, got {text!r}") from error
    return found


def compared(found: Iterable[Summary], published: Published, last: int) -> list[Compared]:
    """The results at the percentages of arrivals for which results were published, and at the end.

    Args:
        last: Percentage of arrivals at the end of the runs.
    """
    percentages = {(workload, arrived) for workload, _, arrived in published}
    return [
        Compared(each, published.get((each.workload, each.policy, each.arrived_pct)))
        for each in found
        if (each.workload, each.arrived_pct) in percentages or each.arrived_pct == last
    ]


def write_report(
    folder: Path, outcomes: Mapping[Run, Outcome], found: Sequence[Summary], beside: Sequence[Compared]
) -> None:
    """Write `curves.csv`, `summary.csv`, `comparison.csv`, and one picture for each workload."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = (
        [run.workload, run.policy, run.seed, point.arrived_pct]
        + [f"{value:.4f}" for value in (point.alloc_pct, point.frag_pct, point.frag_ratio_pct)]
        for run, outcome in outcomes.items()
        for point in outcome.points
    )
    measures = ["alloc_pct", "frag_pct", "frag_ratio_pct"]
    _write(folder / "curves.csv", ["workload", "policy", "seed", "arrived_pct", *measures], curves)
    key = ["workload", "policy", "arrived_pct"]
    rows = ([*each[:3], f"{each.alloc_mean:.4f}", f"{each.alloc_sd:.4f}", each.n] for each in found)
    _write(folder / "summary.csv", [*key, "alloc_mean", "alloc_sd", "n"], rows)
    differences = (
        [*each.summary[:3], f"{each.summary.alloc_mean:.4f}", each.published, f"{each.difference:.4f}"]
        for each in beside
        if each.published is not None
    )
    _write(folder / "comparison.csv", [*key, "alloc_mean", "published", "difference"], differences)
    for workload in dict.fromkeys(each.workload for each in found):
        of_workload = [each for each in found if each.workload == workload]
        (folder / f"{workload}.svg").write_text(picture(workload, of_workload), encoding="utf-8")


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def picture(workload: str, found: Sequence[Summary]) -> str:
    """An SVG with a curve for each policy: allocated over arrived GPU capacity, from 80 %."""
    last = max((each.arrived_pct for each in found), default=_FIRST_ARRIVED + 1)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x_of(arrived: float) -> float:
        return _LEFT + wide * (arrived - _FIRST_ARRIVED) / max(last - _FIRST_ARRIVED, 1)

    def y_of(allocated: float) -> float:
        return _TOP + high * (100 - allocated) / (100 - _FIRST_ALLOCATED)

    middle = f"{_TOP + high / 2:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">Allocated GPUs, workload {escape(workload)}</text>',
        f'<text x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 10}" {_CENTRED}>arrived, % of the capacity</text>',
        f'<text x="16" y="{middle}" {_CENTRED} transform="rotate(-90 16 {middle})">allocated, % of the capacity</text>',
    ]
    for percent in range(_FIRST_ALLOCATED, 101, 5):
        y = y_of(percent)
        parts.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{percent}</text>')
    parts += (
        f'<text x="{x_of(percent):.1f}" y="{_TOP + high + 18}" {_CENTRED}>{percent}</text>'
        for percent in range(_FIRST_ARRIVED, last + 1, 10)
    )
    for index, policy in enumerate(dict.fromkeys(each.policy for each in found)):
        colour = _COLOURS[index % len(_COLOURS)]
        curve = [
            each
            for each in found
            if each.policy is policy and each.arrived_pct >= _FIRST_ARRIVED and each.alloc_mean >= _FIRST_ALLOCATED
        ]
        points = " ".join(f"{x_of(each.arrived_pct):.1f},{y_of(each.alloc_mean):.1f}" for each in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        y = _TOP + 16 + 20 * index
        end = f" {curve[-1].alloc_mean:.2f}" if curve else ""
        parts.append(f'<rect x="{_LEFT + wide + 14}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + wide + 32}" y="{y}">{escape(policy)}{end}</text>')
    return "\n".join([*parts, "</svg>\n"])
