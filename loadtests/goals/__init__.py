"""The figures that Escher is to reach, measured: see docs/performance.md.

`rows` has them as data, `measured` what was found and how far it reaches, `history` what was found before, `table`
tells it. Measures: `http_verbs` against the reference extender, `control_plane` from a run of `escher compare`,
`core_costs` by calls in this process, `at_scale` of a service with many pods, `resource_costs` of ephemeral resources.
"""
