// Package simtest tests package redisbucket with simulated faults. Fleets of processes,
// an in-memory network and a server that executes the real script run in one synctest
// bubble, so that hours pass in a second. One seed is one run: its calls, its faults and
// every latency follow from the seed.
//
// A seed always gives the same run, because no two events happen at the same instant
// unless their order makes no difference: latencies and instants are random in
// nanoseconds, and each connection has random numbers of its own.
//
// The parts are: world, which all others share; conn and network, which carry bytes;
// server, engine and truth, which are the server, the script, and the bucket as it should
// be; process, which makes calls; plan, which lists the events; and check, which finds
// the violations.
package simtest
