"""Explained: shows in the management API why a pod or a gang waits."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from extender.adapters.http.models import changes
from extender.adapters.http.models.answers import Answer, Number, short_view, timestamp
from extender.app.contracts.explanation import Explanation


class NodeGroupView(Answer):
    """Nodes that the same rule excludes."""

    rule: str
    count: int
    detail: str
    examples: list[str]
    policy: Annotated[str, Field(description="The policy that has the rule; empty if none", examples=["apart"])]
    type: Annotated[str, Field(description="The type of that policy", examples=["anti-affinity"])]
    resource: str | None = None
    asked: Number | None = None
    free: Number | None = None


class RemedyView(Answer):
    """A change that helps, as tried on a copy of the cluster."""

    said: Annotated[str, Field(examples=["2 more nodes like node-3, with 4 cpu"])]
    changes: Annotated[list[dict[str, Any]], Field(description="The same, as POST /v1/what-if takes it")]


class ExplanationView(Answer):
    """Why something waits, since when, and what would help."""

    subject: str
    waits: bool
    summary: str
    since: Annotated[datetime | None, Field(description="Since when it waits; null if unknown")]
    reason_since: Annotated[datetime | None, Field(description="Since when for this reason")]
    groups: list[NodeGroupView]
    tried: Annotated[list[RemedyView], Field(description="What helps: Escher tried each on a copy of the cluster")]
    remedies: Annotated[list[str], Field(description="In words: what Escher tried; else what may help by the rules")]
    node: Annotated[str | None, Field(description="The node of a bound pod; null for a gang or a waiting pod")] = None


def explanation_view(explanation: Explanation) -> ExplanationView:
    return ExplanationView(
        subject=explanation.subject,
        waits=explanation.waits,
        summary=explanation.summary,
        groups=[
            NodeGroupView(
                rule=group.rule,
                count=group.count,
                detail=group.detail,
                examples=list(group.examples),
                policy=group.policy,
                type=group.type,
                **(short_view(group.short) if group.short else {}),
            )
            for group in explanation.groups
        ],
        since=timestamp(explanation.since),
        reason_since=timestamp(explanation.reason_since),
        tried=[
            RemedyView(said=each.said, changes=list(map(changes.shown, each.changes))) for each in explanation.tried
        ],
        remedies=[each.said for each in explanation.tried] or list(explanation.remedies),
        node=explanation.node,
    )
