"""Draws the pictures of the page on arithmetic: ``python -m docs.explanation.pictures``.

Each is made of what the limiters decide, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from asgi_ratelimit import parse_quotas
from asgi_ratelimit.tools import simulate

HERE = Path(__file__).parent
BLUE, RED, GREY = "#2a6fb0", "#c0392b", "#8a8a8a"

FLOOD = [number / 20 for number in range(60)]
"""Twenty requests a second, for three seconds."""
EDGE = [55 + number * 0.05 for number in range(100)] + [61 + number * 0.05 for number in range(100)]
"""A hundred requests before the start of a minute, and a hundred after it."""
CROWD = [0.0] * 8 + [1.0, 1.1]
"""Eight calls at once, and two more."""


def admitted(quota: str, times: Sequence[float], max_delay: float = 0.0) -> list[float]:
    """When those of the requests leave that are admitted, in seconds."""
    result = simulate(parse_quotas(quota), times, max_delay)
    return sorted([time for time in result.admitted_at if time is not None])


def steps(times: Sequence[float], end: float) -> tuple[list[float], list[int]]:
    """How many there are until each moment, as a line of steps."""
    return [0.0, *times, end], [0, *range(1, len(times) + 1), len(times)]


def token_bucket(axes: Any) -> None:
    """A flood against a token bucket: what is admitted stays under the line of the promise."""
    end = FLOOD[-1]
    passed = admitted("10/s burst 5", FLOOD)
    axes.step(*steps(FLOOD, end), where="post", color=GREY, label="requests")
    axes.plot([0, end], [5, 5 + 10 * end], color=RED, linestyle="--", label="burst + T * limit / period")
    axes.step(*steps(passed, end), where="post", color=BLUE, label="admitted")
    axes.set(xlabel="seconds", ylabel="requests so far")


def kinds(axes: Any) -> None:
    """The three kinds of quota at the start of a minute."""
    axes.step(*steps(EDGE, 66), where="post", color=GREY, label="requests")
    for quota, style in (("100/minute fixed", "-"), ("100/minute", "--"), ("100/minute rolling", ":")):
        axes.step(*steps(admitted(quota, EDGE), 66), where="post", linestyle=style, label=quota)
    axes.axvline(60, color=GREY, linewidth=0.7)
    axes.set(xlabel="seconds", ylabel="requests so far", xlim=(54, 66))


def pacing(axes: Any) -> None:
    """The slots of calls that come at once, under two quotas."""
    quotas = ("4/s burst 1", "4/s burst 4")
    for row, quota in enumerate(quotas, 1):
        leaving = admitted(quota, CROWD, math.inf)
        axes.plot(leaving, [row] * len(leaving), "o", color=BLUE)
        for time, slot in zip(CROWD, leaving):
            axes.plot([time, slot], [0, row], color=GREY, linewidth=0.5)
    axes.plot(CROWD, [0] * len(CROWD), "o", color=RED)
    axes.set(xlabel="seconds", ylim=(-0.3, 2.3))
    axes.set_yticks([0, 1, 2], ["calls come", *[f"leave under\n{quota}" for quota in quotas]])


PICTURES = {"token-bucket": token_bucket, "kinds": kinds, "pacing": pacing}


def draw(folder: Path) -> None:
    """Write each picture into the folder, as SVG."""
    mpl.rcParams.update({"svg.hashsalt": "pictures", "svg.fonttype": "none", "font.size": 9})
    for name, fill in PICTURES.items():
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.subplots()
        fill(axes)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(HERE)
