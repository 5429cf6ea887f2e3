"""Every printed constant of ReadKV, enclosed: exact rationals where they are rational, balls (flint.arb) elsewhere.

mpmath's interval arithmetic is the second engine where it can be: kappa_int and the separation ratios. Its erfc does
not converge on intervals, so the tree has one engine (and the reference's float64 builder as a witness).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from proofs_checks.statements.nested_codes import worst_point
from proofs_checks.statements.rigorous import precision
from refimpl.readkv.reuse_model import extra_write_fraction, steps_for_any_prompt
from refimpl.readkv.tree import deployed_table

# The papers' own roundings, used in its proofs: eps_8 < .0097, pi < 3.142, e < 2.719, e^10 > 22000.
EPS_ABOVE, PI_ABOVE, E_ABOVE = Fraction("0.0097"), Fraction("3.142"), Fraction("2.719")


def float_up(value: Fraction) -> float:
    """The least float not below a rational.

    >>> float_up(Fraction(1, 3)) > 1 / 3 - 1e-17, Fraction(float_up(Fraction(1, 3))) >= Fraction(1, 3)
    (True, True)
    """
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """The largest float not above a rational."""
    return -float_up(-value)


def depth_one_centroid() -> Fraction:
    """c_1, the positive reconstruction of one bit, as the exact value of its float32 entry."""
    return Fraction(float(deployed_table().centroids[1][1]))


def depth_two_at_one() -> Fraction:
    """Q_2(1), the depth-two reconstruction of 1."""
    return Fraction(float(deployed_table().centroids[2][3]))


def eps_8() -> Fraction:
    """eps_8 = sup over [-1, 1] of |u - Q_8(u)| of the float32 table, exactly.

    >>> Fraction("0.0096543431") < eps_8() < Fraction("0.0096543432")
    True
    """
    return worst_point("lloyd", 8)[1]


def paper_separation_1() -> Fraction:
    """k times Theorem 1's certified ratio with the papers' roundings: 1 / (8 * 3.142 * 2.719 * .0097^2) = 155.507....

    >>> round(float(paper_separation_1()), 4)
    155.5074
    """
    return 1 / (8 * PI_ABOVE * E_ABOVE * EPS_ABOVE**2)


def as_ball(value: Fraction) -> Any:
    """A rational as a ball."""
    import flint

    return flint.arb(flint.fmpq(value.numerator, value.denominator))


def kappa_int() -> Any:
    """3 4^(1/3) / (e ln 4), Prop. 10's constant, as a ball."""
    import flint

    return 3 * flint.arb(4).root(3) / (flint.arb(1).exp() * flint.arb(4).log())


def separation_1() -> Any:
    """k times Theorem 1's ratio at r = 2d, L = 8, with the true eps_8: 1 / (8 pi e eps_8^2) = 157.04...."""
    import flint

    return 1 / (8 * flint.arb.pi() * flint.arb(1).exp() * as_ball(eps_8()) ** 2)


def theorem_2_upper(epsilon: Fraction) -> Any:
    """(p eps + rho)^2 with p = 1 / (1 + e^-10) and rho = 1 - p."""
    import flint

    rho = 1 / (1 + flint.arb(10).exp())
    return ((1 - rho) * as_ball(epsilon) + rho) ** 2


def theorem_2_converse(m: int | None) -> Any:
    """tanh(5)^2 2^(-7 - 2/m) / (pi e); None is the limit of large m."""
    import flint

    rate = flint.arb(2) ** (-7 - (as_ball(Fraction(2, m)) if m else 0))
    return flint.arb(5).tanh() ** 2 * rate / (flint.arb.pi() * flint.arb(1).exp())


def gain_ratio() -> Any:
    """e^20 Delta_8 / Delta_1 of the deployed gains: the margin by which all bits go to the attended token."""
    import flint

    gains = deployed_table().gains
    return flint.arb(20).exp() * as_ball(Fraction(float(gains[7])) / Fraction(float(gains[0])))


# name, value (a Fraction or a ball), relation to the printed number, printed number
CONSTANTS: tuple[tuple[str, Callable[[], Any], str, str], ...] = (
    ("kappa_int", kappa_int, "<", "1.264"),
    ("kappa_int", kappa_int, ">", "1.263740721"),
    ("1/(8 pi e eps_8^2)", separation_1, ">", "155.507"),
    ("the same with the papers' roundings", paper_separation_1, ">", "155.507"),
    ("its value at k = 32", lambda: separation_1() / 32, ">", "4.85"),
    ("(p eps_8 + rho)^2", lambda: theorem_2_upper(eps_8()), "<", "9.50e-5"),
    ("the same with eps_8 < .0097", lambda: theorem_2_upper(EPS_ABOVE), "<", "9.50e-5"),
    ("Theorem 2's converse, m = 1", lambda: theorem_2_converse(1), ">", "2.285e-4"),
    ("Theorem 2's factor, m = 1", lambda: theorem_2_converse(1) / theorem_2_upper(EPS_ABOVE), ">", "2.40"),
    ("Theorem 2's factor, m = 128", lambda: theorem_2_converse(128) / theorem_2_upper(EPS_ABOVE), ">", "9.52"),
    ("e^20 Delta_8 / Delta_1", gain_ratio, ">", "104400"),
    ("eta(8192, 128)", lambda: extra_write_fraction(stored=8, fixed=4, prompt=8192, steps=128), "<", "0.00787355"),
    ("eta(8192, 128)", lambda: extra_write_fraction(stored=8, fixed=4, prompt=8192, steps=128), ">", "0.00787345"),
    ("steps for 1%", lambda: Fraction(steps_for_any_prompt(stored=8, fixed=4, fraction=0.01)), "<", "201.5"),
    ("steps for 1%", lambda: Fraction(steps_for_any_prompt(stored=8, fixed=4, fraction=0.01)), ">", "200.5"),
)


def holds(value: Any, relation: str, printed: str) -> bool:
    """Whether a constant stands on the printed side, certified: rationals exactly, balls by both ends.

    >>> holds(Fraction(1, 3), "<", "0.34"), holds(Fraction(1, 3), ">", "0.34")
    (True, False)
    """
    number = Fraction(printed)
    if isinstance(value, Fraction):
        return value < number if relation == "<" else value > number
    other = as_ball(number)
    return bool(value < other) if relation == "<" else bool(value > other)


def certify() -> list[tuple[str, bool]]:
    """Check every entry of `CONSTANTS` at 320 bits; python-flint is needed.

    >>> all(ok for name, ok in certify())
    True
    """
    with precision(320):
        return [
            (f"{name} {relation} {printed}", holds(value(), relation, printed))
            for name, value, relation, printed in CONSTANTS
        ]


def second_engine() -> dict[str, tuple[float, float]]:
    """The transcendental constants by mpmath's interval arithmetic: name -> (low, high).

    >>> low, high = second_engine()["kappa_int"]
    >>> 1.263740721215 < low <= high < 1.263740721216
    True
    """
    from mpmath import iv

    iv.dps = 30
    epsilon, e, pi = iv.mpf(eps_8().numerator) / eps_8().denominator, iv.exp(iv.mpf(1)), iv.pi
    rho = 1 / (1 + iv.exp(iv.mpf(10)))
    upper = ((1 - rho) * epsilon + rho) ** 2
    tanh = (iv.exp(iv.mpf(10)) - 1) / (iv.exp(iv.mpf(10)) + 1)
    values = {
        "kappa_int": 3 * iv.exp(iv.log(iv.mpf(4)) / 3) / (e * iv.log(iv.mpf(4))),
        "separation_1": 1 / (8 * pi * e * epsilon**2),
        "theorem_2_upper": upper,
        "theorem_2_converse_1": tanh**2 / (pi * e) / 512,
    }
    return {name: (float(value.a), float(value.b)) for name, value in values.items()}
