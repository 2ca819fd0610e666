"""Traces: a span for each call, for each write to the API server, and for each plan of a gang.

    TracedService --> TracedVerbs --> the decisions --> TracedCluster --> API server
         span          attributes      GangSpans           span

If the setting `tracing` asks for it, these classes wrap the service's parts at the start; else only `start` is
imported. Only `export` uses OpenTelemetry's SDK, the rest its API. No code here decides, or delays or fails the traced
code.
"""
