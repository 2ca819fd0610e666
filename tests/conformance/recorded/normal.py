"""Normal form of answers: what differs from run to run is a placeholder, named by the ask that first told it.

Two answers that had the same uid, version or continue token have the same placeholder, and others have others; so what
is lost is the value alone. Times are all alike. Owners of fields (`managedFields`) are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_COUNTED = {"resourceVersion": "version", "continue": "continue token"}
_TOLD_VERSION = re.compile(
    r"(ResourceVersion in record \(|ResourceVersion in object meta: |Too large resource version: \d+, current: "
    r'|resourceVersion\\?":\\?")\d+'
)


class Placeholders:
    """Those of one session."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._first: Counter[tuple[str, str]] = Counter()

    def normal(self, answer: Any, ask: str, *, generated: str = "") -> Any:
        """The answer to that ask in its normal form. `generated`: the `generateName` of the request, if it had one."""
        return _Normal(self, ask, generated).of(answer)

    def named(self, what: str, value: str, ask: str) -> str:
        if (what, value) not in self._known:
            self._first[what, ask] += 1
            number = self._first[what, ask]
            self._known[what, value] = f"<{what}{'' if number == 1 else f' {number}'} of {ask}>"
        return self._known[what, value]


@dataclass(frozen=True)
class _Normal:
    placeholders: Placeholders
    ask: str
    generated: str

    def of(self, answer: Any) -> Any:
        if isinstance(answer, dict):
            listed = str(answer.get("kind", "")).endswith("List")
            return {
                key: self._list_metadata(value) if listed and key == "metadata" else self._field(key, value)
                for key, value in answer.items()
                if key != "managedFields"
            }
        if isinstance(answer, list):
            return [self.of(each) for each in answer]
        return self._text(answer) if isinstance(answer, str) else answer

    def _list_metadata(self, metadata: Any) -> Any:
        # The version of a list counts writes to anything, the components' own as well.
        return {**self.of(metadata), "resourceVersion": "<version>"} if isinstance(metadata, dict) else metadata

    def _field(self, key: str, value: Any) -> Any:
        if key in _COUNTED and isinstance(value, str) and value:
            return self.placeholders.named(_COUNTED[key], value, self.ask)
        return self.of(value)

    def _text(self, text: str) -> str:
        if self.generated:
            text = re.sub(rf"({re.escape(self.generated)})[a-z0-9]{{5}}\b", r"\1<random>", text)
        text = _UID.sub(lambda found: self.placeholders.named("uid", found[0], self.ask), text)
        return _TOLD_VERSION.sub(r"\1<version>", _TIME.sub("<time>", text))
