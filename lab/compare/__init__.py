"""Compare: gangs by every approach, on one control plane and in one run.

A run is made of trials, each of one approach:

pods        as their author writes them, and the one client that creates and deletes them
approaches  how each places the same gang; policies how each places groups by a policy other than gangs
polling     for what nobody tells
waiting     other gangs that wait for room meanwhile
outside     a process of its own that watches pods, and knows nothing of approaches
costs       what a trial took of the API server, the schedulers and the service
plan        which trials, in which order
running     the trials, one after the other; comparing writes them down, and goes on with a run that was cut off
kept        whether such a policy was kept, as seen from outside
lines       of policy code, counted

From a run's raw files to its report, for which nothing has to run again:

runs        the folder of a run and its raw files
timeline    what the pods of a trial say of its gangs
occupancy   what they held of the room, and when nothing could go on
figures     medians, ratios and claims, with intervals
measured    the figures of a run, by set-up and approach
judging     what we say, beside what it has found
telling     what the report says; tables and plots what it shows; page how that is written down
report      all of it as files
"""
