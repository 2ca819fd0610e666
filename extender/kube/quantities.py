"""Quantities: Kubernetes' numbers with suffixes as whole numbers, and vectors of them.

CPU is counted in thousandths of a core, everything else in whole units (bytes, pods, devices), rounded up as
kube-scheduler does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from extender.kube.names import CPU, ResourceKey

Vector = Mapping[ResourceKey, int]
"""Units by resource. A resource left out counts as 0."""

_QUANTITY = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?"
)
_SUFFIX = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip
_LARGEST = 2**63 - 1
LARGEST_AMOUNT = _LARGEST // 1000
"""Most units in a Node's status: kube-apiserver counts them in thousandths, in 64 bits."""
_LONGEST = 64


class InvalidQuantity(ValueError):
    """A text that is no quantity, or cannot be counted. `str()` says why."""


@lru_cache(maxsize=16384)
def parse_quantity(text: str) -> Fraction:
    """The exact value of a quantity such as `500m`, `1e3`, `0.5`, `1Ei`. Raises InvalidQuantity."""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidQuantity(
            f"{text[:_LONGEST]!r} is not a quantity; write a number such as 4, 0.5, 500m, 1e3 or 16Gi"
        )
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits.rstrip("."))
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif suffix:
        value *= _SUFFIX[suffix]
    return -value if sign == "-" else value


@lru_cache(maxsize=65536)
def count(resource: str, text: str) -> int:
    """Whole units, rounded up; milli-cores for cpu. Raises InvalidQuantity, also below 0.

    Values beyond 2^63-1 count as 2^63-1, as in Kubernetes.
    """
    value = parse_quantity(text)
    if value < 0:
        raise InvalidQuantity(f"{resource}: {text!r} is negative; write 0 or more")
    return min(-((-value * (1000 if resource == CPU else 1)) // 1), _LARGEST)
