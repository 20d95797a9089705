//go:build !race

package simtest

const isRace = false
