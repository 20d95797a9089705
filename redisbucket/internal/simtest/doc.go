// Package simtest tests package redisbucket with simulated faults. Fleets of processes,
// an in-memory network and a server that executes the real script run in one synctest
// bubble, so that hours pass in a second. One seed is one run: its calls, its faults and
// every latency follow from the seed.
//
// A seed always gives the same run, because no two events happen at the same instant
// unless their order makes no difference. Latencies and instants are random in
// nanoseconds, and each connection has its own random numbers.
//
// All parts share world. conn and network carry bytes. server, engine and truth are the
// server, the script, and the bucket as it should be. process makes calls, plan lists the
// events, and check finds the violations.
package simtest
