"""Weeks of a cluster's life in virtual time, as unkind as a real one, all of it from one seed.

`crews` plays the controllers that the embedded cluster has not, `foreign` another scheduler, `works` what people let
run, `happenings` what befalls the cluster; `ward` looks for harm, `hoards` for room that idles, `rest` whether
everything that could run does in the end; `life` is one life, `python -m loadtests.life` many.
"""
