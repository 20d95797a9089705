package redisbucket

// Source is the script, for tests that run it with a clock of their own.
var Source = source
