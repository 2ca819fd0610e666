"""Faults: a proxy between the service and the API server delays, loses, repeats and cuts, while gangs and pods are
placed on a real control plane; then it is an honest proxy again, everything is left to settle, and what is left behind
is looked for from outside.

`__main__` is the command. `draw` decides what goes wrong, `proxy` does it, `work` is what is placed meanwhile, `run`
puts them together; load, witness and checks are those of `loadtests.chaos`.
"""
