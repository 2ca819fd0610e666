"""Compare: gangs by every approach, on one control plane and in one run.

approaches  how each places the same gang
outside     a process of its own that watches pods, and knows nothing of approaches
costs       what a trial took of the API server, the schedulers and the service
plan        which trials, in which order
running     the trials, one after the other
"""
