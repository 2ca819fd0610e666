"""A channel is dead when nothing has come through for a while though it was tried, and only then."""

from __future__ import annotations

from extender.core.ledger.channel import AT_LEAST, Channel


def failing(channel: Channel, *at: float) -> bool:
    for moment in at:
        channel.failed(moment)
    return channel.is_dead


def test_failures_for_as_long_as_is_borne_make_it_dead() -> None:
    assert not failing(Channel(30), 0, 10, 20, 29)
    assert failing(Channel(30), 0, 10, 20, 30)


def test_one_answer_among_them_keeps_it_alive() -> None:
    channel = Channel(30)
    failing(channel, 0, 10, 20)
    channel.answered()
    assert not failing(channel, 30, 40, 50)


def test_few_failures_say_nothing_however_far_apart() -> None:
    assert not failing(Channel(30), *(31.0 * each for each in range(10)))
    assert not failing(Channel(30), *(30.0 * each for each in range(AT_LEAST - 1)))


def test_where_nothing_is_tried_nothing_is_dead() -> None:
    assert not Channel(30).is_dead
