package redisbucket

// Source is the script, for tests that run it with a clock of their own.
var Source = source

// Probe lets a request through to a server that has failed, of which nothing is
// heard any more.
func Probe(b *Buckets) { _ = b.server.circuits.enter(b.server.nameFor("")) }
