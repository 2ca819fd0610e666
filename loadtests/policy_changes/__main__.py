"""Changes policies under load, and judges every decision and every wake from outside.

    python -m loadtests.policy_changes --changes 1000 --real
    python -m loadtests.policy_changes --changes 100 --seed 7 --json

In namespaces with four nodes each, pods and gangs come and go. Meanwhile the EscherPolicies that match them are
created, put, patched and deleted over HTTP; bad changes among them are refused. From time to time all is at rest. Then
one change lets an unschedulable pod be bound: nothing else happens, and it must be bound within --patience. In
addition, gangs wait for one licence in the order of policies of priority, with new random priorities each turn.

Judges use separate arithmetic (loadtests/policy_changes/rules.py), the API server's watch and the service's answers.
Every Binding must be right by policies that were in force at some moment between the decision (--latest before it was
seen) and the Binding. Gangs waiting for the licence must be served in order.

Exit code 1 if anything was found, 0 if not. With --real the control plane is built first (Go, some minutes); without,
the embedded cluster is used.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

import msgspec

from lab.controlplane.clusters import EmbeddedCluster, RealCluster
from loadtests.policy_changes.run import CHECKS, Plan, Result, run, spread
from loadtests.shared.progress import say

_SHOWN = 8


def table(result: Result) -> str:
    """Returns what was done, how long it took, and what was found."""
    rows: list[tuple[str, object]] = [
        ("changes of policies", result.changes),
        ("bad changes, refused", result.refused),
        ("pods created", result.pods),
        ("gangs created", result.gangs),
        ("pods deleted", result.deleted),
        ("Bindings judged", result.bound),
        ("  of pods that a policy governs", result.governed),
        ("  right by policies replaced by then", len(result.late)),
        ("  that was how long before", spread(result.late)),
        ("turns of the licence", result.turns),
        ("changes at rest that help somebody", result.probes),
        ("  pods bound for that", result.woken),
        ("  not woken by the service, but by chance", result.by_others),
        ("  the first was bound after", spread(result.wakes)),
        ("  all were bound after", spread(result.waited)),
        ("a change was answered after", spread(result.calls)),
        ("took", f"{result.seconds:.0f} s"),
        *((check, len(result.findings[check])) for check in CHECKS),
    ]
    return "\n".join(f"{name:<46}{value!s:>24}" for name, value in rows) + "\n(times: median / 95 % / longest)"


def details(result: Result) -> str:
    lines = [f"found by: {again(result.plan)}"]
    for check, found in result.findings.items():
        lines += [f"{check}: {each}" for each in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"{check}: and {len(found) - _SHOWN} more")
    return "\n".join(lines)


def again(plan: Plan, *, real: bool = False) -> str:
    usual = Plan()
    said = f" --changes {plan.changes} --seed {plan.seed}"
    for name in ("yards", "patience", "latest"):
        if (value := getattr(plan, name)) != getattr(usual, name):
            said += f" --{name} {value:g}"
    return f"python -m loadtests.policy_changes{said}{' --real' if real else ''}"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line; `plan` is made from it."""
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m loadtests.policy_changes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--changes", type=int, default=usual.changes, help=f"at least (default: {usual.changes})")
    parser.add_argument("--yards", type=int, default=usual.yards, help=f"namespaces (default: {usual.yards})")
    parser.add_argument("--seed", type=int, help="draws changes and pods (default: a new one)")
    parser.add_argument(
        "--patience",
        type=float,
        default=usual.patience,
        help=f"seconds within which whoever can be bound must be (default: {usual.patience:g})",
    )
    parser.add_argument(
        "--latest",
        type=float,
        default=usual.latest,
        help=f"seconds before a Binding is seen that it may have been decided (default: {usual.latest:g})",
    )
    parser.add_argument("--real", action="store_true", help="on a real control plane, not the embedded cluster")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output, not as a table")
    parsed = parser.parse_args(given)
    if parsed.changes < 1 or not 1 <= parsed.yards <= 50 or parsed.patience <= 0 or parsed.latest <= 0:
        parser.error("--changes must be 1 or more, --yards 1 to 50, and times more than 0")
    seed = random.SystemRandom().randrange(10**6) if parsed.seed is None else parsed.seed
    parsed.plan = Plan(
        changes=parsed.changes, yards=parsed.yards, seed=seed, patience=parsed.patience, latest=parsed.latest
    )
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    kind = RealCluster if wanted.real else EmbeddedCluster
    say(f"seed {wanted.plan.seed}; starting {'a real control plane' if wanted.real else 'the embedded cluster'}")
    with kind.start() as cluster:
        result = run(cluster, wanted.plan, say)
    if wanted.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n")
    else:
        sys.stdout.write(f"\n{table(result)}\n\nagain with: {again(wanted.plan, real=wanted.real)}\n")
    if not result.is_clean:
        say(f"\n{details(result)}\n")
    return 0 if result.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
