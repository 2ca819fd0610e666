"""The script: what is asked, subject by subject and in this order. Later subjects find what earlier ones have made."""

from tests.conformance.recorded.asks import numbered
from tests.conformance.recorded.script import (
    bindings,
    custom_patches,
    custom_resources,
    deletions,
    disruption,
    events,
    jobs,
    lists,
    nodes,
    patches,
    placed_pods,
    pods,
    simple,
)

SCRIPT = [
    *numbered("pods", pods.ASKS),
    *numbered("bindings", bindings.ASKS),
    *numbered("patches", patches.ASKS),
    *numbered("deletions", deletions.ASKS),
    *numbered("lists", lists.ASKS),
    *numbered("nodes", nodes.ASKS),
    *numbered("placed-pods", placed_pods.ASKS),
    *numbered("jobs", jobs.ASKS),
    *numbered("events", events.ASKS),
    *numbered("disruption", disruption.ASKS),
    *numbered("simple", simple.ASKS),
    *numbered("custom-resources", custom_resources.ASKS),
    *numbered("custom-patches", custom_patches.ASKS),
]
