"""Chaos: parts of a real control plane are killed or paused at random moments while gangs and pods are placed; then
everything is left to settle, and what is left behind is looked for from outside.

`__main__` is the command. `strikes` says what is struck when, `load` keeps the cluster busy, `offers` sets ephemeral
resources, `crowd` watches the pods, `rest` looks at what is left, `run` puts them together.
"""
