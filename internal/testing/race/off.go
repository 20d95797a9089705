//go:build !race

// Package race lets tests know whether the race detector is on.
package race

// Enabled reports whether the race detector is on, which makes tests some ten times slower.
const Enabled = false
