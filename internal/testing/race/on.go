//go:build race

package race

// Enabled reports whether the race detector is on, which makes tests about ten times
// slower.
const Enabled = true
