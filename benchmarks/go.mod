module github.com/aa014e13/tokenbucket/benchmarks

go 1.26.0

require (
	github.com/aa014e13/tokenbucket v0.0.0
	golang.org/x/time v0.16.0
)

replace github.com/aa014e13/tokenbucket => ../
