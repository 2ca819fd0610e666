"""Differences: where the embedded API server answers otherwise on purpose, and what is compared all the same.

Each must still be one: a difference that is gone fails the test, so that this list stays true.
"""

from __future__ import annotations

from dataclasses import dataclass

EVERYTHING = "*"


@dataclass(frozen=True)
class Difference:
    """Of the answers to one ask. Status and body are compared, but for these places of the body."""

    why: str
    apart_from: tuple[str, ...] = ("message", "details.causes")
    other_status: bool = False


_TWICE = Difference("the real one tells a cause as often as it comes upon it", ("details.causes",))
_CHANGES = Difference("the real one shows what a pod's update changes as lines of its internal form")
_VALUES = Difference("values in messages are written as in JSON, not in the real one's internal form")
_OWNERS = Difference("the message shows the whole object, here without owners of fields and in another order")

DIFFERENCES: dict[str, Difference] = {
    "patches/moved": _CHANGES,
    "patches/other-grace": _CHANGES,
    "patches/selector-without-gates": _CHANGES,
    "placed-pods/less-env": _CHANGES,
    "patches/other-uid": _TWICE,
    "patches/bad-label": _TWICE,
    "deletions/finalizer-too-late": _TWICE,
    "deletions/finalizers-too-late": _TWICE,
    "nodes/taint-twice": _TWICE,
    "custom-patches/other-uid": _TWICE,
    "jobs/other-template": _VALUES,
    "placed-pods/strict-merge-patch": _OWNERS,
    "custom-patches/strict": _OWNERS,
    "simple/applied-again": Difference("without owners of fields, what is applied no more stays", ("data",)),
    "lists/bad-token": Difference("what Go's decoder says of the token is left out", ("message",)),
    "lists/protobuf": Difference("there is no protobuf in answers", (EVERYTHING,)),
    "custom-resources/definition": Difference(
        "definitions are established at once", ("status.acceptedNames", "status.conditions")
    ),
    "custom-resources/established": Difference("and so never written again", ("metadata.resourceVersion",)),
    "custom-patches/definition": Difference("definitions are gone at once", (EVERYTHING,)),
    "custom-resources/of-another-kind": Difference("rules are not asked about an object of another kind"),
    "custom-resources/hundred-years-and-a-half": Difference("the type is looked at before the limit"),
    "custom-patches/made-at-a-name": Difference("POST is for collections alone", (EVERYTHING,), other_status=True),
}
