module github.com/aa014e13/tokenbucket

go 1.25.0

require github.com/benbjohnson/clock v1.3.5
