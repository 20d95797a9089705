module github.com/aa014e13/tokenbucket/internal/testing/linear

go 1.26.0

require (
	github.com/aa014e13/tokenbucket v0.1.0
	github.com/anishathalye/porcupine v1.3.1
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/aa014e13/tokenbucket => ../../..
