module github.com/aa014e13/tokenbucket

go 1.25.0
