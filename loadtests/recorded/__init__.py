"""Recorded: what a real kube-scheduler sends to an extender, in a form that can be sent again.

`calls` has them as data and uses only the standard library, for Locust; `template` makes that data from a body; `scene`
lets a real scheduler send one; `python -m loadtests.recorded` records all again.
"""
