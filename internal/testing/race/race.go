// Package race makes tests shorter if the race detector, which slows them down, is on.
package race

// Fewer returns n, or a fifth of it if the race detector is on, at least 1.
func Fewer(n int) int {
	if Enabled {
		return max(1, n/5)
	}
	return n
}
