module github.com/aa014e13/tokenbucket/redisbucket/internal/simtest

go 1.26.0

require (
	github.com/aa014e13/tokenbucket v0.1.0
	github.com/aa014e13/tokenbucket/redisbucket v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/stretchr/testify v1.12.1
	github.com/yuin/gopher-lua v1.1.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/aa014e13/tokenbucket => ../../../

replace github.com/aa014e13/tokenbucket/redisbucket => ../../
