"""A small set of cases in which every pair of values of two factors occurs together."""

import itertools
import random

TRIES = 40
"""Random completions of a pair that are compared for what else they cover."""
MOST = 400
"""Random completions after which a pair counts as one that cannot occur."""


def pairs_of(case):
    """Returns every pair of (factor, value) in a case."""
    return set(itertools.combinations(sorted(case.items()), 2))


def completions(pair, factors, allowed, draw):
    """Yields random cases that hold a pair and can be, some of them or none."""
    found = 0
    for tries in range(MOST):
        case = {name: draw.choice(values) for name, values in factors.items()} | dict(pair)
        if allowed(case):
            found += 1
            yield case
        if found and tries >= TRIES:
            return


def covering(factors, allowed):
    """Chooses cases greedily until every pair of values that can occur together does.

    Args:
        factors: Values of each factor, by its name.
        allowed: Whether a case can be.

    Returns:
        The cases, the same ones each time.
    """
    draw = random.Random(0)
    singles = [(name, value) for name, values in sorted(factors.items()) for value in values]
    missing = [(a, b) for a, b in itertools.combinations(singles, 2) if a[0] != b[0]]
    chosen = []
    while missing:
        wanted = set(missing)
        found = list(completions(missing[0], factors, allowed, draw))
        if not found:
            del missing[0]
            continue
        chosen.append(max(found, key=lambda case: len(pairs_of(case) & wanted)))
        covered = pairs_of(chosen[-1])
        missing = [pair for pair in missing if pair not in covered]
    return chosen
