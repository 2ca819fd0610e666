from __future__ import annotations

import pytest

from extender.kube.quantities import InvalidQuantity
from kubesim.apiserver.representation.quantities import amounts, canonical


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1000", "1k"), ("1500", "1500"), ("0", "0"), ("0Gi", "0"),
        ("1.5Gi", "1536Mi"), ("100Ki", "100Ki"), ("1e3", "1e3"), ("0.1m", "1m"), ("2000000", "2M"),
        ("1023Ki", "1023Ki"), ("0.5Ki", "512"), ("-2", "-2"), ("110", "110"),
    ],
)  # fmt: skip
def test_an_amount_is_written_back_as_kubernetes_writes_it(given: str, written: str) -> None:
    assert canonical(given) == written


def test_numbers_are_amounts_and_words_are_not() -> None:
    assert amounts({"cpu": 2, "memory": 0.5}) == {"cpu": "2", "memory": "500m"}
    refused: list[object] = ["abc", "", True, None, []]
    for bad in refused:
        with pytest.raises(InvalidQuantity):
            amounts({"cpu": bad})
