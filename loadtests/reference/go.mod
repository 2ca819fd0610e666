module escher.dev/loadtests/reference

go 1.24
