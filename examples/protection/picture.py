"""The measurement as a picture: how many requests took longer than a given time, unprotected and protected.

Plain SVG, drawn from numbers, readable on light and dark pages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 70, 60
SHARES = (1.0, 0.5, 0.1, 0.05, 0.01, 0.001)
COLOURS = ("#d1495b", "#2a7f9e")


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: its name, the latencies in ms, and a remark for the legend."""

    name: str
    latencies_ms: Sequence[float]
    remark: str


def tail_picture(title: str, curves: Sequence[Curve]) -> str:
    """Latency on the x axis, the share of slower requests on the y axis, both logarithmic."""
    slowest = max((max(curve.latencies_ms, default=1.0) for curve in curves), default=1.0)
    fastest = min((min(curve.latencies_ms, default=1.0) for curve in curves), default=1.0)
    low, high = math.log10(max(fastest, 0.1) * 0.9), math.log10(max(slowest, 1.0) * 1.1)
    bottom = math.log10(SHARES[-1])

    def x(milliseconds: float) -> float:
        return LEFT + (math.log10(max(milliseconds, 0.1)) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return TOP + math.log10(max(share, SHARES[-1])) / bottom * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" fill="#222">{title}</text>',
    ]
    for share in SHARES:
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end" fill="#555">{share:.1%}</text>')
    for milliseconds in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if low <= math.log10(milliseconds) <= high:
            at = x(milliseconds)
            parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>')
            parts.append(
                f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#555">{milliseconds}</text>'
            )
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 16}" text-anchor="middle" fill="#222">latency of a request, ms</text>'
    )
    parts.append(
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle"'
        ' fill="#222">slower requests</text>'
    )
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        ordered = sorted(curve.latencies_ms)
        count = len(ordered)
        points = " ".join(
            f"{x(value):.1f},{y((count - index) / count):.1f}"
            for index, value in enumerate(ordered)
            if index % max(count // 400, 1) == 0 or index > count * 0.98
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = 42 + 16 * number
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + 22}" y1="{at - 4}" y2="{at - 4}" stroke="{colour}" stroke-width="3"/>'
        )
        parts.append(f'<text x="{LEFT + 28}" y="{at}" fill="#222">{curve.name}: {curve.remark}</text>')
    return "\n".join([*parts, "</svg>\n"])
