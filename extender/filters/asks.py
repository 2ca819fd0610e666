"""Checks what pods ask of policies by annotation, and words the error about a malformed value.

Names in these annotations follow Kubernetes' rules for label values.
"""

from __future__ import annotations

import re

from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def malformed_name(pod: Pod, key: str, example: str) -> MalformedAsk | None:
    """The error in the annotation, which holds a name; None if it is absent or well formed."""
    value = pod.annotations.get(key)
    if value is None or _NAME.fullmatch(value):
        return None
    expected = "a name of at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    return malformed(key, value, expected, example)


def malformed(key: str, value: str, expected: str, example: str) -> MalformedAsk:
    """An error text: the annotation is not as expected; `example` shows a valid value."""
    said = f"annotation {key} is {value[:40]!r}, not {expected}"
    return MalformedAsk(key, value, said, f'write for example {key}: "{example}"')
