"""A client of the embedded cluster that asks for anything: right and wrong requests, drawn from one seed.

`python -m loadtests.client` runs it for ten minutes and prints what was answered.
"""
