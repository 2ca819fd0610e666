"""Compare: gangs by every approach, on one control plane and in one run.

From a run's raw files to its report, for which nothing has to run again:

runs        the folder of a run and its raw files
timeline    what the pods of a trial say of its gangs
figures     medians, ratios and claims, with intervals
measured    the figures of a run, by set-up and approach
telling     what the report says; plots what it shows; page how that is written down
report      all of it as files
"""
