"""The whole service on the embedded cluster in virtual time, under faults that a seed has drawn, many thousand times.

A plan (`plan`, `drawing`) is what people ask for and what goes wrong, as plain values. A run (`run`) carries it out,
has the invariants checked after each round of the event loop (`steps`), and compares what comes of it with an oracle
that knows nothing of the service (`outcome`). What fails is made smaller (`shrinking`). Bugs that are put in on purpose
(`mutants`) show that they are found.
"""
