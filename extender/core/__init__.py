"""Core: decides about pods, gangs and nodes, as pure functions of its inputs.

Time is an argument, in seconds of a clock that only advances. The time of day is used only for comparison with the API
server's own times. The core uses the standard library, numpy and the pure parts of `extender.kube`, so that every
decision can be replayed from its inputs.
"""
