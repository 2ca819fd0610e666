"""Sends random right and wrong requests to the embedded cluster, drawn from one seed.

`python -m loadtests.client` runs it for ten minutes and prints what was answered.
"""
