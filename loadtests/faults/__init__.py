"""Faults: a proxy between the service and the API server delays, loses, repeats and cuts messages.

Meanwhile gangs and pods are placed on a real control plane. Then the proxy is honest again, everything settles, and
checks from outside look for what is left behind. `__main__` is the command. `draw` decides what goes wrong, `proxy`
does it, `work` is what is placed meanwhile, `run` puts them together. Load, witness and checks are those of
`loadtests.chaos`.
"""
