"""Kubernetes' quantities as whole numbers."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given

from extender.kube.quantities import InvalidQuantity, count, parse_quantity

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "cpu", "memory"),
    [
        ("0", 0, 0),
        ("4", 4000, 4),
        ("+4", 4000, 4),
        ("500m", 500, 1),
        ("0.5", 500, 1),
        (".5", 500, 1),
        ("5.", 5000, 5),
        ("1e3", 1_000_000, 1000),
        ("1E3", 1_000_000, 1000),
        ("1e-3", 1, 1),
        ("1.5e3", 1_500_000, 1500),
        ("100u", 1, 1),
        ("1n", 1, 1),
        ("1k", 1_000_000, 1000),
        ("16Gi", 16 * 2**30 * 1000, 16 * 2**30),
        ("1.5Gi", 3 * 2**29 * 1000, 3 * 2**29),
        ("1E", LARGEST, 10**18),
        ("1Ei", LARGEST, 2**60),
        ("8Ei", LARGEST, LARGEST),
        ("1e999", LARGEST, LARGEST),
        ("1e-999", 1, 1),
        ("-0", 0, 0),
        ("0" * 60 + "1.5", 1500, 2),
    ],
)
def test_a_quantity_is_counted_rounded_up_and_held_at_the_largest(text: str, cpu: int, memory: int) -> None:
    assert (count("cpu", text), count("memory", text)) == (cpu, memory)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ".", "+", "e3", "1e", "1e+", "1 Gi", " 1", "1\n", "1ki", "1KI", "1Kii", "1e3Ki", "1_000", "0x10",
        "1,5", "1.2.3", "--1", "NaN", "inf", "1e9999", "٣", "1٣", "1e٣", "１", "²", "½", "1µ", "9" * 65, "9" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_with_an_example_of_one(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="is not a quantity; write a number such as") as refusal:
        count("memory", text)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("text", ["-1", "-0.5", "-1Ei", "-1e999", "-1n"])
def test_what_is_negative_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidQuantity, match=r"cpu: .* is negative; write 0 or more"):
        count("cpu", text)


def test_a_negative_quantity_has_an_exact_value_all_the_same() -> None:
    assert parse_quantity("-1.5Ki") == Fraction(-1536)


@given(st.text(max_size=80) | st.text("0123456789.+-eEinumkKMGTP٣", max_size=12))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        number = count("memory", text)
    except InvalidQuantity:
        return
    assert 0 <= number <= LARGEST
    assert text.isascii()


@given(st.integers(0, 2**70), st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Gi", "Ei"]))
def test_counting_equals_rounding_the_exact_value_up(number: int, suffix: str) -> None:
    exact = parse_quantity(f"{number}{suffix}")
    counted = count("memory", f"{number}{suffix}")
    assert counted == LARGEST or exact <= counted < exact + 1
