"""ReadKV Eq. (4).

B bits about the uniform cube leave a squared error of at least 2^(1-2b/n) / (pi e) per coordinate.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from proofs_checks.statements import box_trees
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.rigorous import available, precision
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-equation-4",
    source="ReadKV Eq. (4)",
    claim="Any observation with at most b bits of information about Z uniform on [-1, 1]^n leaves an MMSE of at least "
    "2^(1 - 2b/n) / (pi e) per coordinate.",
    hypotheses="I(Z; O) <= b log 2.",
    kind=Kind.LOWER_BOUND,
    tight="Z observed in Gaussian noise of deviation .005: ratio .996, tending to 1 with the noise.",
    hazard="The Gaussian channel's information and MMSE are integrals: enclosed by ball quadrature, whose radius is "
    "the "
    "guard (python-flint is needed for it; box observations need none).",
    finding="Sharp, but not by readers: box trees stay at pi e / 6 = 1.4233 times the bound for every integer b / n; "
    "Gaussian noise stands at 1.045 with 3.34 bits.",
)


def hypotheses(instance: Instance) -> None:
    """Observations are box trees or Gaussian channels with positive noise."""
    for item in instance["observations"]:
        require(not isinstance(item, float) or item > 0, "positive noise", item)


@lru_cache(maxsize=64)
def gaussian_channel(noise: float) -> tuple[float, float, float]:
    """(bits, MMSE, relative radius) of observing Z + noise N(0, 1), by ball quadrature.

    I = h(O) - h(noise), MMSE = 1/3 - E (E[Z|O])^2; beyond 14 deviations both integrands weigh less than 1e-40.

    >>> bits, error, radius = gaussian_channel(0.05)
    >>> 3.33 < bits < 3.35, radius < 1e-12
    (True, True)
    """
    import flint

    with precision(160):
        sigma = flint.acb(noise)
        span = (flint.acb(0), flint.acb(1 + 14 * noise))  # both integrands are even
        tail = flint.arb(0, 1e-30)
        entropy = 2 * flint.acb.integral(lambda o, flag: entropy_density(sigma, o, flag), *span).real + tail
        noise_entropy = (2 * flint.arb.pi() * flint.arb(1).exp() * sigma.real**2).log() / 2
        bits = (entropy - noise_entropy) / flint.arb(2).log()
        seen = 2 * flint.acb.integral(lambda o, flag: squared_mean_density(sigma, o), *span).real
        error = flint.arb(1) / 3 - seen + tail
        radius = 1.4 * float(bits.rad()) + float(error.rad()) / float(error.mid()) + 1e-15  # d(2^-2b) = 1.39 db
        return float(bits.mid()), float(error.mid()), radius


def output_density(sigma: Any, o: Any) -> Any:
    """Density of the observation: (Phi((o + 1) / sigma) - Phi((o - 1) / sigma)) / 2, entire in o."""
    import flint

    width = sigma * flint.acb(2).sqrt()
    return (((o + 1) / width).erf() - ((o - 1) / width).erf()) / 4


def entropy_density(sigma: Any, o: Any, analytic: bool) -> Any:
    """-f log f of the observation's density."""
    density = output_density(sigma, o)
    return -density * density.log(analytic)


def squared_mean_density(sigma: Any, o: Any) -> Any:
    """f (E[Z | O = o])^2, by Tweedie's formula f E[Z|O] = o f + sigma^2 f'."""
    import flint

    def normal(x: Any) -> Any:
        return (-x * x / 2).exp() / (2 * flint.acb.pi()).sqrt()

    density = output_density(sigma, o)
    slope = (normal((o + 1) / sigma) - normal((o - 1) / sigma)) / (2 * sigma)
    weighted = o * density + sigma * sigma * slope
    return weighted * weighted / density


def measured(instance: Instance) -> FloatArray:
    """Bits, MMSE per coordinate, dimension and relative guard of every observation. [N, 4]."""
    rows = []
    for item in instance["observations"]:
        if isinstance(item, float):
            bits, error, radius = gaussian_channel(item)
            rows.append([bits, error, 1.0, radius])
        else:
            sides = box_trees.side_errors(item)
            rows.append(
                [box_trees.information(item), float(sides.mean()), float(len(sides)), gamma(4 * len(item) + 20)]
            )
    return np.array(rows).reshape(-1, 4)


def left(instance: Instance) -> FloatArray:
    """MMSE per coordinate. [N]."""
    return measured(instance)[:, 1]


def right(instance: Instance) -> FloatArray:
    """2^(1 - 2b/n) / (pi e) with b the observation's own information. [N]."""
    bits, _, dimension, _ = measured(instance).T
    return np.exp2(1 - 2 * bits / dimension) / (np.pi * np.e)


def guard(instance: Instance) -> FloatArray:
    """The relative guard of every observation, doubled for the two sides. [N]."""
    rows = measured(instance)
    return 2 * (rows[:, 3] + gamma(20) * (1 + rows[:, 0])) * rows[:, 1]


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Gaussian noise of deviation .005 (without python-flint: one halving of each side, 1.4233).

    >>> check(tight_instance()).tightest > 0.99
    True
    """
    return {"observations": [0.005 if available() else box_trees.balanced_tree(1, 1)]}


def families() -> list[Instance]:
    """Every box tree of n <= 3, r <= 3; balanced trees up to 96 bits; Gaussian channels from 0.6 to 6.6 bits."""
    small_trees = [{"observations": list(box_trees.all_trees(n, r))} for n in (1, 2, 3) for r in range(4)]
    large = {"observations": [box_trees.balanced_tree(n, r) for n in (1, 4, 12) for r in range(0, 97, 6)]}
    channels = {"observations": [0.5, 0.1, 0.05, 0.02, 0.005] if available() else []}
    return [*small_trees, large, *([channels] if available() else [])]


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random box trees."""
    n, r = small(rng, 1, 4), small(rng, 0, 6)
    return {"observations": [box_trees.random_tree(rng, n, r) for _ in range(min(count, 50))]}
