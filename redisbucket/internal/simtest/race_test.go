//go:build race

package simtest

const isRace = true
