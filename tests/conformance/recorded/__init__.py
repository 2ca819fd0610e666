"""A session with a real kube-apiserver: some hundred requests and its answers, to be asked of the embedded one again.

`script` has the requests, `session.jsonl` what the real one answered, `differences` where the embedded one differs on
purpose. `python -m tests.conformance.recorded` writes the file anew; `tests/conformance/test_recorded.py` replays it.
"""
