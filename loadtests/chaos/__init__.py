"""Chaos: kills or pauses parts of a real control plane at random moments while pods are placed.

Then everything settles, and checks from outside look for what is left behind. `__main__` is the command. `strikes` says
what is struck and when. `load` keeps the cluster busy, `offers` sets ephemeral resources, `crowd` watches the pods.
`rest` looks at what is left, `run` puts them together.
"""
