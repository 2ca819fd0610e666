"""Asks: a policy's answer to a task, which says what the task's pod must contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import ConfigDict, Field, JsonValue, StrictStr

from extender.adapters.http.models.answers import Answer
from extender.adapters.http.models.models import LABEL_SCHEMA, Body, Quantities
from extender.adapters.http.models.parameters import IsDryRun, Namespace, management, noun
from extender.adapters.http.problems import documented
from extender.app.contracts import policy_state
from extender.app.contracts.kind import Identity
from extender.app.contracts.policy_state import AskCalls
from extender.esl.runtime.policy_esl import Task
from extender.kube.names import require_label

router = noun("policies")
_MOST_LABELS = 64
_EXAMPLE: JsonValue = {"task": {"name": "train-0", "needs": {"cpu": 2, "memory": "4Gi"}}}


class TaskBody(Body):
    """A pod that does not exist yet."""

    name: Annotated[StrictStr, Field(examples=["train-0"], json_schema_extra=LABEL_SCHEMA)]
    group: Annotated[
        StrictStr,
        Field(
            description="The task's group; for `shares`, its user. Empty: none", examples=["research"], max_length=63
        ),
    ] = ""
    needs: Annotated[
        Quantities | None, Field(description="Other requests of its pod; a queue offers it only nodes with these")
    ] = None
    node_labels: Annotated[
        Mapping[str, StrictStr], Field(description="Its pod's node selector", max_length=_MOST_LABELS)
    ] = Field(default_factory=dict)


class AskBody(Body):
    """The task to ask for."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    task: TaskBody

    def asked(self) -> Task:
        said = self.task
        return Task(said.name, said.group, said.needs or {}, dict(said.node_labels))


class AnswerView(Answer):
    """What the task's pod must contain, and what the policy did for it."""

    namespace: str
    policy: str
    type: Annotated[str, Field(examples=["queue"])]
    task: str
    requirement: Annotated[
        Mapping[str, str],
        Field(
            description="To add to requests and limits of the pod's first container",
            examples=[{"escher.dev/team-a.slots--unit": "1"}],
        ),
    ]
    labels: Annotated[Mapping[str, str], Field(examples=[{"esl.escher.dev/slots": "train-0"}])]
    annotations: Mapping[str, str]
    schedulerName: Annotated[str, Field(examples=["escher"])]  # noqa: N815
    effects: Annotated[
        Sequence[str],
        Field(
            description="Actions in progress for this ask and for others of the same moment, in words; empty if"
            " there are none, as for a repeated ask",
            examples=[["escher.dev/team-a.slots--unit becomes 1 on node-3"]],
        ),
    ]
    notices: Annotated[
        Sequence[str], Field(description="What blocks the policy now, in words; the pod waits meanwhile")
    ]


async def _calls(request: Request) -> AskCalls:
    return (await management(request)).asks


async def _name(
    namespace: Namespace, name: Annotated[str, Path(description="Of a policy", json_schema_extra=LABEL_SCHEMA)]
) -> Identity:
    return Identity(namespace, require_label("name", name))


@router.post(
    "/namespaces/{ns}/policies/{name}:ask",
    responses=documented({409: "The policy is not in force, or its resources' names are taken"}),
)
async def ask_policy(
    calls: Annotated[AskCalls, Depends(_calls)],
    name: Annotated[Identity, Depends(_name)],
    body: AskBody,
    dry_run: IsDryRun,
) -> AnswerView:
    """What the task's pod must contain to fall under the policy. Asking again for the same task changes nothing.

    A policy that pods name answers that annotation. A policy that is asked (queue, signal, shares) stores the task, and
    answers which resources its pod must request, and the label that identifies it.
    """
    return _view(await calls.ask_policy(name, body.asked(), dry_run=dry_run))


def _view(answer: policy_state.Answer) -> AnswerView:
    said = answer.requirement
    return AnswerView(
        namespace=answer.name.namespace,
        policy=answer.name.name,
        type=answer.type,
        task=answer.task,
        requirement=dict(said.resources),
        labels=dict(said.labels),
        annotations=dict(said.annotations),
        schedulerName=said.scheduler_name,
        effects=list(answer.effects),
        notices=list(answer.notices),
    )
