"""A Lease that was restored as it was when a leader had given it back makes nobody lead beside who leads."""

from __future__ import annotations

from dataclasses import replace

from extender.core.election import Election
from tests.core.test_election import TERMS, Store, elected, look, write


def test_a_lease_that_is_restored_as_given_back_makes_no_second_leader() -> None:
    store = Store()
    first = elected("a", store, 10)
    assert first.leads(10)
    store.put(first.released())
    backup = store.record
    first.resign()
    second = Election("b", "http://b", TERMS)
    third = Election("c", "http://c", TERMS)
    look(second, store, 11)
    write(second, store, 11)
    look(third, store, 11.0)
    assert second.leads(11)
    store.version = 1_000_000
    store.record = replace(backup, version="1000000")
    look(third, store, 11.3)
    write(third, store, 11.3)
    assert not (second.leads(11.35) and third.leads(11.35))
