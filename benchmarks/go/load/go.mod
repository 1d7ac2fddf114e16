module dralab.dev/benchmarks/load

go 1.21
