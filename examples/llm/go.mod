module github.com/aa014e13/tokenbucket/examples/llm

go 1.25.0

require (
	github.com/aa014e13/tokenbucket v0.1.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace github.com/aa014e13/tokenbucket => ../..
