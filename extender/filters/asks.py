"""What pods ask of policies by annotation: the value of a key, and how one that is malformed is told.

Knows Kubernetes' rules for label values, which names in these annotations keep to. Must not know any policy.
"""

from __future__ import annotations

import re

from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def malformed_name(pod: Pod, key: str, example: str) -> MalformedAsk | None:
    """What is wrong with the annotation, which names something; None if the pod has none or it is well formed."""
    value = pod.annotations.get(key)
    if value is None or _NAME.fullmatch(value):
        return None
    expected = "a name of at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    return malformed(key, value, expected, example)


def malformed(key: str, value: str, expected: str, example: str) -> MalformedAsk:
    """The annotation is not what is expected; the example shows one that is."""
    said = f"annotation {key} is {value[:40]!r}, not {expected}"
    return MalformedAsk(key, value, said, f'write for example {key}: "{example}"')
