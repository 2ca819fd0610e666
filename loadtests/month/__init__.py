"""A month of resources in virtual time: requests, troubles, and whether all views agree.

`applications` make requests over HTTP, again and again; `troubles` disturb cluster and service. `agreement` compares
node status, objects, ledger and requests. `month` is one month, and also counts the service's writes. `python -m
loadtests.month` runs some.
"""
