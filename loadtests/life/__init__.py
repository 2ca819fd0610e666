"""Weeks of a cluster's life in virtual time, as unkind as a real one, all drawn from one seed.

`crews` plays the controllers that the embedded cluster lacks, `foreign` another scheduler. `works` is what people run,
`happenings` what happens to the cluster. `loadtests.harm` looks for harm, `hoards` for idle room, `rest` for pods that
could run but do not. `life` is one life, `python -m loadtests.life` many.
"""
