"""Holdings: writes what the service's ledger holds and the number of verbs over time, to a CSV.

It reads the service's metrics. Each holding is of one pod, existing or expected, so that units of `pods` count them.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Self

import httpx

from loadtests.shared.ledger import Service

HOLDINGS = "holdings.csv"
STATES = ("reserved", "assumed", "saved", "bound")
HEAD = ("second", *STATES, "gangs", "verbs")
"""`verbs`: answered since the service began."""

_UNITS, _GANGS, _VERBS = "escher_ledger_units", "escher_gang_phase", "escher_extender_duration_seconds_count"


class Holdings:
    """Writes a row when `take` is called, inside the `with` block."""

    def __init__(self, file: Path, service: Service) -> None:
        self._file, self._service = file, service

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._text = self._file.open("w", newline="")
        self._rows = csv.writer(self._text, lineterminator="\n")
        self._rows.writerow(HEAD)
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()

    def take(self) -> None:
        """Writes the state of now, or nothing if the service does not answer."""
        try:
            told = self._service.metrics()
        except (httpx.HTTPError, ValueError):
            return
        held, gangs, verbs = dict.fromkeys(STATES, 0.0), 0.0, 0.0
        for (name, labels), value in told.items():
            said = dict(labels)
            if name == _UNITS and said["resource_class"] == "pods" and said["state"] in held:
                held[said["state"]] += value
            elif name == _GANGS:
                gangs += value
            elif name == _VERBS:
                verbs += value
        numbers = (*held.values(), gangs, verbs)
        self._rows.writerow((f"{time.monotonic() - self._began:.1f}", *(f"{each:g}" for each in numbers)))
        self._text.flush()
