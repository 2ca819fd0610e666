"""The figures that Escher is to reach, measured: see docs/performance.md."""
