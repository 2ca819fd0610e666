"""The scheduling cycle: filter, bind, requeue, and the effect of pod and policy events."""
