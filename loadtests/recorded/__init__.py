"""Recorded: what a real kube-scheduler sends to an extender, in a form that can be sent again and again.

`calls` has them as data and knows the standard library alone, for Locust; `template` makes that data of a body;
`scene` lets a real scheduler send one; `python -m loadtests.recorded` records them anew.
"""
