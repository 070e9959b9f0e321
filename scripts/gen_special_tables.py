"""Writes penstock/ops/kernels/special_tables.py: polynomial fits of special functions, made with mpmath.

Each fit is the Chebyshev interpolant of a smooth function on an interval, written as a polynomial in the variable t that
maps the interval to [-1, 1]. Run it with any Python that has mpmath; the result is committed, so users never need it.

    python scripts/gen_special_tables.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mpmath as mp

mp.mp.dps = 50
TARGET = Path(__file__).parent.parent / "penstock/ops/kernels/special_tables.py"


def fit(function: Callable, low, high, tolerance: float = 2e-17, most: int = 60) -> list[float]:
    """Coefficients, highest power first, in t = (2x - low - high) / (high - low)."""
    low, high = mp.mpf(low), mp.mpf(high)
    n = most
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / n) for k in range(n)]
    values = [function((low + high) / 2 + (high - low) / 2 * t) for t in nodes]
    chebyshev = []
    for j in range(n):
        total = mp.fsum(v * mp.cos(mp.pi * j * (k + mp.mpf(1) / 2) / n) for k, v in enumerate(values))
        chebyshev.append(total * (1 if j == 0 else 2) / n)
    scale = max(abs(v) for v in values)
    while len(chebyshev) > 1 and abs(chebyshev[-1]) < tolerance * scale:
        chebyshev.pop()
    # T_0 .. T_n as polynomials; their sum in exact arithmetic, rounded once at the end.
    previous, current = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    result = [mp.mpf(0)] * len(chebyshev)
    for j, c in enumerate(chebyshev):
        basis = previous if j == 0 else current
        for i, b in enumerate(basis):
            result[i] += c * b
        if j >= 1:
            following = [mp.mpf(0)] + [2 * b for b in current]
            for i, b in enumerate(previous):
                following[i] -= b
            previous, current = current, following
    return [float(r) for r in reversed(result)]


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


def erfcx_of_t(t):
    """(1 + 2x) exp(x^2) erfc(x) with t = (x - 3.75) / (x + 3.75): smooth up to infinity."""
    if t == 1:
        return 2 / mp.sqrt(mp.pi)
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    if x > 200:
        total, term = mp.mpf(1), mp.mpf(1)
        for k in range(1, 15):
            term *= -(2 * k - 1) / (2 * x * x)
            total += term
        return (1 + 2 * x) * total / (x * mp.sqrt(mp.pi))
    return (1 + 2 * x) * erfcx(x)


def normal_tail(s):
    """z with P(N > z) = exp(-s^2 / 2), divided by s."""
    p = mp.exp(-s * s / 2)
    z = mp.findroot(lambda v: mp.log(mp.erfc(v / mp.sqrt(2)) / 2) - mp.log(p), s - mp.log(s * mp.sqrt(2 * mp.pi) + 1) / s)
    return z / s


def hankel(order: int, part: str) -> Callable:
    """The slowly varying factors of J and Y, as functions of u = (8/x)^2."""

    def value(u):
        u = max(u, mp.mpf(10) ** -30)
        x = 8 / mp.sqrt(u)
        if x > 3000:
            mu = mp.mpf(4 * order * order)
            p, q, term = mp.mpf(1), mp.mpf(0), mp.mpf(1)
            for k in range(1, 9):
                term *= (mu - (2 * k - 1) ** 2) / (k * 8 * x)
                if k % 2:
                    q += (-1) ** (k // 2) * term
                else:
                    p += (-1) ** (k // 2) * term
        else:
            angle = x - mp.pi * (2 * order + 1) / 4
            h = (mp.besselj(order, x) + 1j * mp.bessely(order, x)) * mp.exp(-1j * angle) * mp.sqrt(mp.pi * x / 2)
            p, q = h.real, h.imag
        return p if part == "p" else q * x / 8

    return value


def root(x):
    return mp.sqrt(max(x, mp.mpf(10) ** -40))


def i_series(order: int, u):
    """I_order(x) / (x/2)^order as a function of u = x^2."""
    return mp.nsum(lambda k: (u / 4) ** k / (mp.factorial(k) * mp.factorial(k + order)), [0, mp.inf])


def k0_rest(u):
    """K0(x) + log(x/2) I0(x), u = x^2."""
    x = root(u)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k1_rest(u):
    """x K1(x) - x log(x/2) I1(x), u = x^2."""
    x = root(u)
    return x * mp.besselk(1, x) - x * mp.log(x / 2) * mp.besseli(1, x)


def asymptotic(function: Callable, expansion: Callable, large=600) -> Callable:
    """A function of v = 1/x that follows its expansion where direct evaluation is hopeless."""
    return lambda v: expansion(v) if v * large < 1 else function(1 / v)


def series(coefficients) -> Callable:
    return lambda v: mp.fsum(c * v**k for k, c in enumerate(coefficients))


def ie_coefficients(order: int, sign: int):
    """Hankel's expansion of sqrt(2 pi x) exp(-x) I (sign -1) and sqrt(2x/pi) exp(x) K (sign +1) in powers of 1/x."""
    mu, term, result = mp.mpf(4 * order * order), mp.mpf(1), [mp.mpf(1)]
    for k in range(1, 16):
        term *= sign * (mu - (2 * k - 1) ** 2) / (k * 8)
        result.append(term)
    return result


def fresnel_auxiliary(which: str) -> Callable:
    """x f(x) and x^3 g(x) as functions of u = 1/x^2, where C = 1/2 + f sin - g cos and S = 1/2 - f cos - g sin."""

    def value(u):
        if u < mp.mpf("0.0004"):
            w = u / mp.pi
            f = 1 - 3 * w**2 + 105 * w**4 - 10395 * w**6
            g = 1 - 15 * w**2 + 945 * w**4 - 135135 * w**6
            return f / mp.pi if which == "f" else g / mp.pi**2
        x = 1 / mp.sqrt(u)
        angle = mp.pi * x * x / 2
        c, s = mp.mpf("0.5") - mp.fresnelc(x), mp.mpf("0.5") - mp.fresnels(x)
        f = s * mp.cos(angle) - c * mp.sin(angle)
        g = c * mp.cos(angle) + s * mp.sin(angle)
        return f * x if which == "f" else g * x**3

    return value


def ei_scaled(x):
    return mp.ei(x) * mp.exp(-x) * x


def ei_tail(v):
    if v < mp.mpf("0.0001"):
        return mp.fsum(mp.factorial(k) * v**k for k in range(12))
    return ei_scaled(1 / v)


def dawson(x):
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def dawson_tail(u):
    """2 x D(x) as a function of u = 1/x^2."""
    if u < mp.mpf("0.001"):
        total, term = mp.mpf(1), mp.mpf(1)
        for k in range(1, 14):
            term *= (2 * k - 1) * u / 2
            total += term
        return total
    x = 1 / mp.sqrt(u)
    return 2 * x * dawson(x)


def fresnel_series(which: str) -> Callable:
    """C(x)/x and S(x)/x^3 as functions of u = x^4."""

    def value(u):
        half = (mp.pi / 2) ** 2
        if which == "c":
            return mp.nsum(lambda n: (-half * u) ** n / (mp.factorial(2 * n) * (4 * n + 1)), [0, mp.inf])
        return mp.pi / 2 * mp.nsum(lambda n: (-half * u) ** n / (mp.factorial(2 * n + 1) * (4 * n + 3)), [0, mp.inf])

    return value


def lgamma_core(x):
    """lgamma(x) / ((x - 1)(x - 2))."""
    for zero in (1, 2):
        if abs(x - zero) < mp.mpf(10) ** -20:
            x += mp.mpf(10) ** -18
    return mp.loggamma(x).real / ((x - 1) * (x - 2))


def tables() -> dict[str, list[float]]:
    sqrt2 = mp.sqrt(2)
    t: dict[str, list[float]] = {}
    t["ERF"] = fit(lambda u: mp.erf(root(u)) / root(u), 0, 1)
    t["ERFCX"] = fit(erfcx_of_t, -1, 1)
    t["NDTRI_CENTRE"] = fit(lambda u: sqrt2 * mp.erfinv(2 * root(u)) / root(u), 0, "0.09")
    for i, (low, high) in enumerate(NORMAL_TAIL):
        t[f"NDTRI_TAIL_{i}"] = fit(normal_tail, low, high)
    t["LGAMMA"] = fit(lgamma_core, 1, 3)
    t["I0E_SMALL"] = fit(lambda x: mp.besseli(0, x) * mp.exp(-x), 0, 8)
    t["I0E_LARGE"] = fit(asymptotic(lambda x: mp.sqrt(x) * mp.besseli(0, x) * mp.exp(-x), lambda v: series(ie_coefficients(0, -1))(v) / mp.sqrt(2 * mp.pi)), 0, "0.125")
    t["I1E_SMALL"] = fit(lambda x: mp.besseli(1, x) * mp.exp(-x) / x if x > 0 else mp.mpf("0.5"), 0, 8)
    t["I1E_LARGE"] = fit(asymptotic(lambda x: mp.sqrt(x) * mp.besseli(1, x) * mp.exp(-x), lambda v: series(ie_coefficients(1, -1))(v) / mp.sqrt(2 * mp.pi)), 0, "0.125")
    t["I0_SERIES"] = fit(lambda u: i_series(0, u), 0, 4)
    t["I1_SERIES"] = fit(lambda u: i_series(1, u), 0, 4)
    t["K0_SMALL"] = fit(k0_rest, 0, 4)
    t["K1_SMALL"] = fit(k1_rest, 0, 4)
    t["K0E_LARGE"] = fit(asymptotic(lambda x: mp.sqrt(x) * mp.besselk(0, x) * mp.exp(x), lambda v: series(ie_coefficients(0, 1))(v) * mp.sqrt(mp.pi / 2)), 0, "0.5")
    t["K1E_LARGE"] = fit(asymptotic(lambda x: mp.sqrt(x) * mp.besselk(1, x) * mp.exp(x), lambda v: series(ie_coefficients(1, 1))(v) * mp.sqrt(mp.pi / 2)), 0, "0.5")
    t["J0_SMALL"] = fit(lambda u: mp.besselj(0, root(u)), 0, 64)
    t["J1_SMALL"] = fit(lambda u: mp.besselj(1, root(u)) / root(u), 0, 64)
    t["Y0_SMALL"] = fit(lambda u: mp.bessely(0, root(u)) - 2 / mp.pi * mp.log(root(u)) * mp.besselj(0, root(u)), 0, 64)
    t["Y1_SMALL"] = fit(lambda u: (mp.bessely(1, root(u)) - 2 / mp.pi * (mp.log(root(u)) * mp.besselj(1, root(u)) - 1 / root(u))) / root(u), "1e-24", 64)
    for order in (0, 1):
        for part in "pq":
            t[f"HANKEL{order}_{part.upper()}"] = fit(hankel(order, part), 0, 1)
    t["DAWSN_SMALL"] = fit(lambda u: dawson(root(u)) / root(u), 0, 4)
    t["DAWSN_MIDDLE"] = fit(dawson, 2, 5)
    t["DAWSN_LARGE"] = fit(dawson_tail, 0, "0.04")
    t["EI_SMALL"] = fit(lambda x: mp.nsum(lambda k: x ** (k - 1) / (k * mp.factorial(k)), [1, mp.inf]) if x > 0 else mp.mpf(1), 0, 2)
    for i, (low, high) in enumerate(EI_PIECES):
        t[f"EI_{i}"] = fit(ei_scaled, low, high)
    t["EI_LARGE"] = fit(ei_tail, 0, "0.02")
    t["FRESNEL_C"] = fit(fresnel_series("c"), 0, "6.5536")
    t["FRESNEL_S"] = fit(fresnel_series("s"), 0, "6.5536")
    t["FRESNEL_F"] = fit(fresnel_auxiliary("f"), 0, "0.390625")
    t["FRESNEL_G"] = fit(fresnel_auxiliary("g"), 0, "0.390625")
    t["SPENCE"] = fit(lambda w: mp.polylog(2, -w) / -w if w else mp.mpf(1), "-0.5", "0.5")
    return t


NORMAL_TAIL = (("1.79", "3"), ("3", "6"), ("6", "14"), ("14", "39"))
EI_PIECES = ((2, 4), (4, 7), (7, 12), (12, 22), (22, 50))

HEADER = '''"""Polynomial fits of special functions, made by scripts/gen_special_tables.py. Coefficients, highest power first.

The variable is t = (2x - low - high) / (high - low) on the interval that `special.py` names at each use.
"""

from __future__ import annotations

# fmt: off
'''


def main() -> None:
    lines = [HEADER]
    for name, values in tables().items():
        lines.append(f"{name} = (")
        row = "   "
        for v in values:
            item = f" {v!r},"
            if len(row) + len(item) > 118:
                lines.append(row)
                row = "   "
            row += item
        lines += [row, ")"]
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
