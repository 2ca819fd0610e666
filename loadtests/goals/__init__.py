"""Measures the figures that Escher should reach: see docs/performance.md.

Data: `rows` (the figures), `measured` (a result and what it reaches), `history` (earlier results), `table` (the
output). Measures: `http_verbs` compares with the reference extender; `control_plane` reads a run of `escher compare`;
`core_costs` calls the core in this process; `at_scale` runs a service with many pods; `resource_costs`: resources.
"""
