package redisbucket

// Source is the script, for tests that run it with a clock of their own.
var Source = source

// Try lets a trial go to a server that has failed, of which nothing is heard any more.
func Try(b *Buckets) { _, _ = b.server.circuits.enter(b.server.client.Server("")) }
