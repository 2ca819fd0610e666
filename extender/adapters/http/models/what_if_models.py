"""What-if models: the body and the answer of `POST /v1/what-if`, for pydantic and OpenAPI.

Translates them to the types of `app.contracts.simulation_request` and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictInt, StrictStr

from extender.adapters.http.models.answers import Answer
from extender.adapters.http.models.changes import AnyChange, GangName, Label, ObjectName
from extender.adapters.http.models.explained import ExplanationView, explanation_view
from extender.adapters.http.models.models import Body, Quantities
from extender.adapters.http.problems import Problem
from extender.app.contracts import simulation_request as words
from extender.app.contracts.simulation_changes import SimulationChange
from extender.core.gang_ask import LARGEST_GANG
from extender.core.names import GangKey
from extender.kube.node_match import Toleration

_MOST_CHANGES = 1000

Labels = dict[StrictStr, StrictStr]


class TolerationBody(Body):
    key: StrictStr = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: StrictStr = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Pods(Body):
    """Identical pods that do not exist yet: as a gang, all or none; or each on its own."""

    kind: Literal["pods"]
    namespace: Label
    name: Label
    count: Annotated[StrictInt, Field(ge=1, le=LARGEST_GANG)] = 1
    gang: StrictBool = False
    each: Quantities
    priority: Annotated[StrictInt, Field(ge=-(2**31), lt=2**31)] = 0
    labels: Annotated[Labels, Field(default_factory=dict)]
    node_selector: Annotated[Labels, Field(default_factory=dict)]
    tolerations: Annotated[Sequence[TolerationBody], Field(max_length=64)] = ()

    def question(self) -> words.Question:
        return words.PodsAsked(
            namespace=self.namespace,
            name=self.name,
            count=self.count,
            gang=self.gang,
            each=self.each,
            priority=self.priority,
            labels=self.labels,
            node_selector=self.node_selector,
            tolerations=tuple(Toleration(**each.model_dump()) for each in self.tolerations),
        )


class PodThere(Body):
    """An existing pod that waits."""

    kind: Literal["pod"]
    namespace: Label
    name: ObjectName

    def question(self) -> words.Question:
        return words.PodThere(self.namespace, self.name)


class GangThere(Body):
    """An existing gang that waits."""

    kind: Literal["gang"]
    namespace: Label
    name: GangName

    def question(self) -> words.Question:
        return words.GangThere(GangKey(self.namespace, self.name))


AnyQuestion = Annotated[Pods | PodThere | GangThere, Field(discriminator="kind")]


class WhatIfBody(Body):
    """The changes to simulate, in order; and then the question, if any besides which pods move."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "question": {
                        "kind": "pods",
                        "namespace": "team-a",
                        "name": "train",
                        "count": 64,
                        "gang": True,
                        "each": {"cpu": 4},
                    }
                },
                {"changes": [{"op": "drain", "node": "node-3"}]},
                {
                    "changes": [{"op": "set-quorum", "namespace": "team-a", "gang": "train", "quorum": 48}],
                    "question": {"kind": "gang", "namespace": "team-a", "name": "train"},
                },
            ]
        }
    )

    changes: Annotated[Sequence[AnyChange], Field(max_length=_MOST_CHANGES)] = ()
    question: AnyQuestion | None = None

    def request(self) -> words.SimulationRequest:
        asked = None if self.question is None else self.question.question()
        return words.SimulationRequest([_value(change, index) for index, change in enumerate(self.changes)], asked)


def _value(change: AnyChange, index: int) -> SimulationChange:
    """Raises Problem, with the field's path in the body."""
    try:
        return change.value()
    except Problem as problem:
        problem.field = f"changes[{index}].policy.{problem.field}"
        raise


class PlaceView(Answer):
    pod: str
    node: Annotated[str | None, Field(description="Null: it would not fit")]


class SuppositionView(Answer):
    """The simulated result."""

    fits: Annotated[bool, Field(description="Whether all pods in question and all moved pods would fit")]
    places: Annotated[list[PlaceView], Field(description="Of the pods in question; none for a gang that does not fit")]
    moved: Annotated[list[PlaceView], Field(description="Of the pods of drained nodes")]
    explanation: Annotated[ExplanationView | None, Field(description="Why some of the pods in question do not fit")]


def supposition_view(found: words.SimulationResult) -> SuppositionView:
    return SuppositionView(
        fits=found.fits,
        places=[PlaceView(pod=each.pod, node=each.node) for each in found.places],
        moved=[PlaceView(pod=each.pod, node=each.node) for each in found.moved],
        explanation=None if found.explanation is None else explanation_view(found.explanation),
    )
