// Package simtest tests package redisbucket with simulated trouble: fleets of processes,
// an in-memory network, and a server that executes the real script, all in one synctest
// bubble, so that hours pass in a second. One seed is one run: its calls, its faults and
// every latency follow from the seed.
//
// A run is repeated exactly because no two things happen at the same instant unless their
// order makes no difference: latencies and instants are random in nanoseconds, and each
// connection has random numbers of its own.
//
// The parts: world is what all share; conn and network carry bytes; server, engine and
// truth are the server, the script, and the bucket as it should be; process makes calls;
// plan says what happens when; check says what was wrong.
package simtest
