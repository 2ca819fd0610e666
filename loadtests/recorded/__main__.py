"""Record again what the load tests send: a real kube-scheduler asks the service.

    python -m loadtests.recorded
    python -m loadtests.recorded --nodes 100 --to /tmp/calls.jsonl.gz

For each size of cluster a control plane is started. Ordinary pods, one that asks for an ephemeral resource, a gang of
four and one that preempts come and go. The profiles are `escher` and `escher-ledger`, which sends all nodes and no
sample; each sends node names, and then whole nodes. A few calls of each kind are kept. Names, UIDs, times and addresses
of pods and nodes are left out, and filled in when a call is sent. The control plane is built from source the first time
(Go, some minutes); recording takes some minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtests.recorded.calls import FILE, Call, save
from loadtests.recorded.scene import recorded
from loadtests.shared.progress import say


def table(calls: Sequence[Call]) -> str:
    """The number of calls, by cluster, profile, form, kind and verb."""
    lines = [f"{'cluster':>7}  {'profile':<14}{'nodes':<7}{'kind':<11}{'verb':<12}{'sent':>5}"]
    for each in calls:
        form, sent = "whole" if each.whole else "names", each.sent.count if each.sent else 1
        lines.append(f"{each.cluster:>7}  {each.profile:<14}{form:<7}{each.kind:<11}{each.verb:<12}{sent:>5}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.recorded", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 500, 5000], help="of each cluster, one by one")
    parser.add_argument("--to", type=Path, default=FILE, help="the file (default: the one that the load tests read)")
    wanted = parser.parse_args(given)
    calls: list[Call] = []
    for nodes in wanted.nodes:
        say(f"a real control plane of {nodes} nodes starts")
        calls += recorded(nodes)
    save(calls, wanted.to)
    sys.stdout.write(f"{table(calls)}\n")
    say(f"{len(calls)} calls are in {wanted.to.name}, {wanted.to.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
