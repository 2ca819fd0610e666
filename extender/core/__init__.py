"""The core decides. It holds the cluster as a table and knows every rule about it, and nothing of the world.

It must not know: clocks, logs, randomness, networks, threads, Kubernetes' JSON. Time comes in as an argument, in
seconds that only pass; the time of day only where it is compared with the API server's own times. The standard library,
numpy and what is pure in `extender.kube`, so that every decision can be replayed from its inputs.
"""
