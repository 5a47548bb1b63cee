"""Figures of a tally, as SVG to be inlined: their ink takes the colour of the text around them."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from clozeline.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from clozeline.mask_function import MaskRule, MaskVocabulary
    from clozeline.verification.findings import Check
    from clozeline.verification.tally import Tally

_INK = "#123456"  # stands for the colour of the text
_BLUE, _ORANGE = "#2b8cc4", "#d98200"  # seen on white and on black
_WIDE = 3.89  # standard errors: 1 in 10,000


def figures(tally: Tally, rule: MaskRule, vocabulary: MaskVocabulary, checks: tuple[Check, ...]) -> list[str]:
    """Every figure of a report, as HTML.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--html needs matplotlib: pip install 'clozeline[report]'") from error

    def draw(plot: Callable[[Any], None], caption: str, height: float = 2.6) -> str:
        figure = Figure(figsize=(6, height), layout="constrained")
        axes = figure.add_subplot()
        plot(axes)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        svg = file.getvalue()
        svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
        svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
        svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf'\1 role="img" aria-label="{caption}"', svg, count=1)
        return f"<figure>{_own_ids(svg, len(drawn))}<figcaption>{caption}</figcaption></figure>"

    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    drawn: list[str] = []
    with mpl.rc_context(
        {**dict.fromkeys(ink, _INK), "svg.fonttype": "none", "svg.hashsalt": "clozeline", "font.size": 10}
    ):
        drawn.append(draw(lambda a: _positions(a, tally), "Selected by position, relative to what is expected"))
        drawn.append(
            draw(
                lambda a: _shares(a, checks), "What became of selected tokens: observed, and the interval expected", 2.0
            )
        )
        drawn.append(
            draw(
                lambda a: _replacements(a, tally, vocabulary),
                "Random tokens by range of ids, relative to what is expected",
            )
        )
        drawn.append(draw(lambda a: _rows(a, tally), "Rows by number of selected tokens"))
        drawn.append(draw(lambda a: _fill(a, tally), "Rows by number of tokens that are not padding"))
        drawn.append(draw(lambda a: _stretches(a, tally), "Stretches of text between special tokens, by length"))
    return drawn


def _own_ids(svg: str, number: int) -> str:
    """Ids that no other figure on the page has."""
    svg = re.sub(r'id="([^"]+)"', rf'id="f{number}-\1"', svg)
    return re.sub(r"(url\(#|href=\"#)([^\")]+)", rf"\1f{number}-\2", svg)


def _binned(values: NDArray[Any], bins: int) -> NDArray[np.float64]:
    """Sums of neighbours, at most `bins` of them."""
    group = np.arange(len(values)) * min(bins, len(values)) // len(values)
    return np.asarray(np.bincount(group, np.asarray(values, np.float64)), np.float64)


def _ratio(axes: Any, x: NDArray[Any], observed: NDArray[Any], expected: NDArray[Any], spread: NDArray[Any]) -> None:
    known = expected > 0
    x, observed, expected, spread = x[known], observed[known], expected[known], spread[known]
    band = _WIDE * spread / expected
    axes.fill_between(x, 1 - band, 1 + band, color=_INK, alpha=0.15, linewidth=0, label="1 in 10,000 lies outside")
    axes.plot(x, observed / expected, ".", color=_BLUE, markersize=4)
    axes.axhline(1, color=_INK, linewidth=0.6)
    off = max(0.01, float(np.abs(observed / expected - 1).max(initial=0)), float(band.max(initial=0)))
    axes.set_ylim(max(0.0, 1 - 1.5 * off), 1 + 1.5 * off)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _positions(axes: Any, tally: Tally) -> None:
    cells = 128
    observed, expected = _binned(tally.at, cells), _binned(tally.at_expected, cells)
    x = (np.arange(len(observed)) + 0.5) * tally.row_length / len(observed)
    _ratio(axes, x, observed, expected, np.sqrt(_binned(tally.at_variance, cells)))
    axes.set_xlabel("position")


def _shares(axes: Any, checks: tuple[Check, ...]) -> None:
    shares = [c for c in checks if c.name in ("mask_share", "random_share", "keep_share") and c.statistic]
    for y, check in enumerate(reversed(shares)):
        one = check.statistic
        assert one is not None
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [y, y], color=_INK, alpha=0.35, linewidth=8, solid_capstyle="butt")
        axes.plot(one.observed, y, "o", color=_BLUE)
        axes.annotate(f"{one.observed:.2%}", (one.observed, y), (0, 8), textcoords="offset points", ha="center")
    axes.set_yticks(range(len(shares)), [c.name.removesuffix("_share") for c in reversed(shares)])
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.5, len(shares) - 0.2)


def _replacements(axes: Any, tally: Tally, vocabulary: MaskVocabulary) -> None:
    ordinary = vocabulary.ordinary_ids
    expected = vocabulary.draw_probabilities * (tally.originals.sum() - tally.originals)
    cells = 128
    observed, expected = _binned(tally.drawn[ordinary], cells), _binned(expected[ordinary], cells)
    if observed.sum():
        expected = expected * observed.sum() / expected.sum()
    x = (np.arange(len(observed)) + 0.5) * len(ordinary) / len(observed)
    _ratio(axes, x, observed, expected, np.sqrt(expected))
    axes.set_xlabel("rank of the id among those that may be drawn")


def _rows(axes: Any, tally: Tally) -> None:
    most = int(np.flatnonzero(tally.row_tokens)[-1]) + 1
    axes.bar(np.arange(most), tally.row_tokens[:most], width=1.0, color=_BLUE)
    axes.set_xlabel("selected tokens in a row")
    axes.set_ylabel("rows")


def _fill(axes: Any, tally: Tally) -> None:
    cells = 64
    counts = _binned(tally.fill, cells)
    width = len(tally.fill) / len(counts)
    axes.bar((np.arange(len(counts)) + 0.5) * width, counts, width=width, color=_ORANGE)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("tokens in a row")
    axes.set_ylabel("rows")


def _stretches(axes: Any, tally: Tally) -> None:
    used = np.flatnonzero(tally.stretches)
    last = int(used[-1]) + 1 if len(used) else 1
    axes.bar(np.arange(last), tally.stretches[:last], color=_ORANGE)
    axes.set_xticks(np.arange(last), [str(2**i) for i in range(last)])
    axes.set_xlabel("tokens, from this many on")
    axes.set_ylabel("stretches")
