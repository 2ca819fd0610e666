"""Compare: gangs by every approach, on one control plane and in one run.

A run is made of trials, each of one approach:

    pods          as their author writes them, and the one client that creates and deletes them.
    approaches    how each places the same gang; policies: how each places groups by a policy other than gangs.
    polling       repeated requests for states that no watch reports.
    waiting       other gangs that wait for room meanwhile.
    outside       a process of its own that watches pods, without any part in the approaches.
    costs         what a trial took of the API server, the schedulers and the service.
    plan          which trials, in which order.
    running       runs the trials, one after the other; comparing records them, and continues a run that was cut off.
    policy_check  whether such a policy was kept, as seen from outside.
    lines         of policy code, counted.

The report is made from a run's raw files, without another run:

    runs          the folder of a run and its raw files.
    timeline      each gang's times, from the pods of a trial.
    occupancy     the room that pods held, and the deadlocks.
    figures       medians, ratios and claims, with intervals.
    measured      the figures of a run, by set-up and approach.
    judging       the project's claims, compared with the figures.
    narrative     the report's text; tables and plots: its figures; page: its format.
    report        all of it as files.
"""
