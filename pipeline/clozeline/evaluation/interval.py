"""Standard errors: tokens of one row are not independent, so the row is the unit that varies.

Shapes: R rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Z95 = 1.959963984540054  # the 97.5 % point of the normal distribution


def ratio_standard_error(sums: NDArray[np.float64], counts: NDArray[np.int64]) -> float | None:
    """Standard error of sum(s) / sum(n) over rows drawn independently, s and n being a row's summed loss and selected tokens.

    The linearised ratio estimator (Cochran 1977, "Sampling Techniques", section 6.4): with m = sum(s) / sum(n),
    sqrt(R / (R - 1) * sum((s - m n)**2)) / sum(n). The finite population correction is left out: the rows stand for text
    like them. Also the cluster-robust standard error of a regression on a constant, with its R / (R - 1).

    Args:
        sums: float64 (R,); counts: int64 (R,).

    Returns:
        None with fewer than two rows, or nothing selected. Rows without selected tokens count as rows.
    """
    rows, total = len(sums), int(counts.sum())
    if rows < 2 or not total:
        return None
    mean = math.fsum(sums) / total
    residuals = sums - mean * counts
    return math.sqrt(rows / (rows - 1) * math.fsum(residuals * residuals)) / total


def by_cluster(keys: NDArray[np.int64], *columns: NDArray[Any]) -> list[NDArray[Any]]:
    """Sums of columns (R,) over rows with equal keys, (K, R)."""
    _, group = np.unique(keys, axis=1, return_inverse=True)
    return [np.bincount(group.reshape(-1), weights=column) for column in columns]
