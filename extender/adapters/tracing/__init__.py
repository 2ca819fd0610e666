"""Traces, for who runs a collector: a span for each call, for each write to the API server, and for each gang's plan.

    TracedService --> TracedVerbs --> what decides --> TracedCluster --> API server
         span           what about      GangSpans          span

Everything here is put around what is there anyway, when the service starts and the setting `tracing` says so; where it
says nothing, nothing here is imported but `start`. Knows OpenTelemetry's API, and in `export` its SDK. Must not decide
anything, nor hold up or fail what is traced.
"""
