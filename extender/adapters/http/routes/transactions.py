"""Transactions: several operations as one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from extender.adapters.http.models import answers
from extender.adapters.http.models.answers import TransactionView
from extender.adapters.http.models.models import TransactionBody
from extender.adapters.http.models.parameters import NOT_AT_VERSION, CallerNode, IsDryRun, management, noun
from extender.adapters.http.problems import Problem, ProblemKind, documented
from extender.adapters.http.rights import require_operations
from extender.app.contracts.api import TransactionCalls

router = noun("cluster")


async def _calls(request: Request) -> TransactionCalls:
    return (await management(request)).transactions


Calls = Annotated[TransactionCalls, Depends(_calls)]


@router.post(
    "/transactions", responses=NOT_AT_VERSION | documented({409: "Nothing was committed; `conflicts` says why"})
)
async def transact(
    calls: Calls, body: TransactionBody, caller_node: CallerNode, dry_run: IsDryRun, called: Request
) -> TransactionView:
    """Several operations as one. 409 if a conflict left nothing to commit."""
    try:
        request = body.request(caller_node, dry_run)
    except ValueError as error:
        raise Problem(ProblemKind.INVALID, f"read {error}", field="read") from None
    await require_operations(called, request.operations)
    view = answers.transaction_view(await calls.transact(request))
    if view.conflicts and not view.committed:
        conflicts = [each.model_dump(exclude_none=True) for each in view.conflicts]
        first = view.conflicts[0]
        raise Problem(
            ProblemKind.CONFLICT,
            f"nothing was committed: {first.detail}",
            field=f"operations[{first.index}]",
            extra={"conflicts": conflicts},
        )
    return view
