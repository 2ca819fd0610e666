"""Quantities: writes amounts in the API server's form, such as 1 for 1000m and 1Gi for 1024Mi."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from extender.kube.quantities import InvalidQuantity, parse_quantity
from kubesim.kinds import Json

_DECIMAL = ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"), (-6, "u"), (-9, "n"))
_BINARY = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"), (0, ""))


@lru_cache(maxsize=16384)
def canonical(text: str, *, milli: bool = True) -> str:
    """The same amount without fraction, with the largest suffix that fits. Raises InvalidQuantity.

    `milli`: rounds up to thousandths, as for amounts of resources.
    """
    text = text.strip()
    value = parse_quantity(text)
    smallest = -3 if milli else -9
    value = Fraction(-((-value * 10**-smallest) // 1), 10**-smallest)
    if value == 0:
        return "0"
    if text.endswith("i") and abs(value) >= 1024 and value.denominator == 1:
        for power, suffix in _BINARY:
            if value % 2**power == 0:
                return f"{value / 2**power}{suffix}"
    exponential = text[-1].isdigit() and ("e" in text or "E" in text)
    for power, suffix in _DECIMAL:
        scaled = value / Fraction(10) ** power
        if scaled.denominator == 1:
            return f"{scaled}e{power}" if exponential and power else f"{scaled}{'' if exponential else suffix}"
    return text


def amounts(raw: Json) -> Json:
    """A map of quantities in canonical form. Raises InvalidQuantity."""
    return {resource: canonical(_text(quantity)) for resource, quantity in raw.items()}


def _text(quantity: object) -> str:
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise InvalidQuantity(f"{quantity!r} is not a quantity")
    return quantity if isinstance(quantity, str) else repr(quantity)
