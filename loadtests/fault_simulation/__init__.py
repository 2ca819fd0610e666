"""Runs the whole service on the embedded cluster, in virtual time, under faults drawn from seeds.

A plan (`plan`, `drawing`) holds, as plain values, what people ask for and what goes wrong. A run (`run`) carries it out
and checks the invariants after each round of the event loop (`steps`). It then compares the result with an oracle that
is independent of the service (`outcome`). `shrinking` makes failing plans smaller. Deliberate bugs (`mutants`) prove
that the checks find bugs.
"""
