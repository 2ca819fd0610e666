"""A month of resources in virtual time: what applications ask for, what befalls the cluster, and whether all agree.

`applications` ask over HTTP, again and again; `troubles` is what befalls cluster and service; `agreement` compares node
status, objects, ledger and what was asked for; `writes` counts what the service writes; `month` is one month, and
`python -m loadtests.month` some.
"""
