"""What is held in the ledger is written as the service tells it, for as long as it does."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import httpx

from loadtests.load.results.holdings import HEAD, HOLDINGS, Holdings

TOLD = {
    ("escher_ledger_units", (("resource_class", "pods"), ("state", "bound"))): 40.0,
    ("escher_ledger_units", (("resource_class", "pods"), ("state", "assumed"))): 3.0,
    ("escher_ledger_units", (("resource_class", "pods"), ("state", "capacity"))): 11000.0,
    ("escher_ledger_units", (("resource_class", "cpu"), ("state", "reserved"))): 8000.0,
    ("escher_gang_phase", (("phase", "bound"),)): 5.0,
    ("escher_gang_phase", (("phase", "planned"),)): 2.0,
    ("escher_extender_duration_seconds_count", (("verb", "filter"),)): 100.0,
    ("escher_extender_duration_seconds_count", (("verb", "bind"),)): 20.0,
}


class Telling:
    def __init__(self, *told: Any) -> None:
        self._told = iter(told)

    def metrics(self) -> Any:
        found = next(self._told)
        if isinstance(found, Exception):
            raise found
        return found


def rows(folder: Path, *told: Any) -> list[dict[str, str]]:
    service: Any = Telling(*told)
    with Holdings(folder / HOLDINGS, service) as held:
        for _ in told:
            held.take()
    with (folder / HOLDINGS).open() as text:
        return list(csv.DictReader(text))


def test_pods_are_counted_by_state_and_gangs_and_verbs_in_all(tmp_path: Path) -> None:
    [row] = rows(tmp_path, TOLD)
    assert tuple(row) == HEAD
    assert [row[each] for each in HEAD[1:]] == ["0", "3", "0", "40", "7", "120"]


def test_while_the_service_does_not_answer_there_are_no_rows(tmp_path: Path) -> None:
    assert len(rows(tmp_path, TOLD, httpx.ConnectError("gone"), TOLD)) == 2
