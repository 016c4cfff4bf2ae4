"""Is a difference too small to matter? Two one-sided tests with a declared margin.

A large p of the usual test says nothing of the kind: few seeds give it as well.

Source: Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657-680.
"""

import scipy.stats

from jtransformer.stats.estimates import Estimate


def p_equivalent(estimate: Estimate, margin: float) -> float | None:
    """Tests that a difference lies beyond the margin, on either side.

    A p of at most 0.05 says that it is within; so does a 90 % interval within the margin.

    Args:
        estimate: The difference.
        margin: What would matter, in the unit of the estimate; declared before the runs.

    Returns:
        The larger p of the two one-sided t tests, or None without a standard error.

    Raises:
        ValueError: If the margin is not positive.
    """
    if not margin > 0:
        raise ValueError(f"margin must be positive, got margin={margin}; give what would matter.")
    if estimate.standard_error is None or estimate.degrees_of_freedom is None:
        return None
    # The side that the difference is nearer to decides.
    t = (margin - abs(estimate.value)) / estimate.standard_error
    return float(scipy.stats.t.sf(t, estimate.degrees_of_freedom))
