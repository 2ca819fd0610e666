"""Of what is due the earliest is said, and what never comes is none of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.common.timers import earliest

MOMENTS = st.lists(st.none() | st.floats(allow_nan=False), max_size=6)


@given(MOMENTS)
def test_it_is_the_least_of_those_that_come(moments: list[float | None]) -> None:
    assert earliest(*moments) == min((each for each in moments if each is not None), default=None)


@pytest.mark.parametrize(("moments", "first"), [((), None), ((None, None), None), ((0.0, None, 5.0), 0.0)])
def test_it_is_none_only_where_nothing_comes(moments: tuple[float | None, ...], first: float | None) -> None:
    assert earliest(*moments) == first
