// Package redistest starts Redis servers for tests, which store nothing on disk. Its
// Proxy, between a client and a server, fails as networks and servers do.
package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Server is a server process on a free loopback port. It runs until the end of the test.
type Server struct {
	Addr string

	t       testing.TB
	args    []string
	process *exec.Cmd
}

// Start starts a server. args are added to its command line. If redis-server is not in
// PATH, the test is skipped, or fails if TOKENBUCKET_REQUIRE_REDIS is set.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return startAt(t, freeAddr(t), args...)
}

func startAt(t testing.TB, addr string, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: addr, t: t, args: args}
	s.start()
	t.Cleanup(s.Kill)
	return s
}

// Binary returns the path of redis-server, or skips the test.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	const message = "no redis-server in PATH: install it with: apt-get install redis-server"
	if os.Getenv("TOKENBUCKET_REQUIRE_REDIS") != "" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

func (s *Server) start() {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.Addr)
	require.NoError(s.t, err)
	args := append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"}, s.args...)
	s.process = exec.Command(Binary(s.t), args...)
	s.process.Dir = s.t.TempDir()
	require.NoError(s.t, s.process.Start())
	s.awaitUp()
}

// awaitUp waits until the server accepts connections.
func (s *Server) awaitUp() {
	s.t.Helper()
	for range 3000 {
		if conn, err := net.Dial("tcp", s.Addr); err == nil {
			_ = conn.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.t.Fatalf("the server at %s accepts no connection within 30 s: start redis-server by hand to see why", s.Addr)
}

// Kill ends the process at once, as a crash does.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
}

// Restart kills the server and starts it again, without its data.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.start()
}

// Cluster starts n servers for a Redis Cluster. Each will serve its own slots even if the
// others fail. The caller has to connect them with CLUSTER MEET and give them slots.
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		config := filepath.Join(t.TempDir(), "nodes.conf")
		servers[i] = startAt(t, clusterAddr(t), "--cluster-enabled", "yes", "--cluster-config-file", config,
			"--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
	}
	return servers
}

// clusterAddr returns an address whose port is free, and so is the port that is 10000
// higher. Nodes of a cluster use that one for each other; before Redis 7 it cannot be
// chosen.
func clusterAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := freePort(t)
		bus := fmt.Sprintf("127.0.0.1:%d", port+10_000)
		if listener, err := net.Listen("tcp", bus); err == nil {
			_ = listener.Close()
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	t.Fatal("found no two free ports, the second 10000 higher: run the test again")
	return ""
}

func freeAddr(t testing.TB) string { return fmt.Sprintf("127.0.0.1:%d", freePort(t)) }

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// StartSentinel starts a Redis Sentinel for a master. This Sentinel decides about a failover
// without others. It takes the master for dead after a minute, so that a busy machine causes
// no failover. A test that kills the master shortens this time with SENTINEL SET.
func StartSentinel(t testing.TB, name, master string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(master)
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\nsentinel down-after-milliseconds %[1]s 60000\nsentinel failover-timeout %[1]s 2000\n", name, host, port)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	s := &Server{Addr: freeAddr(t), t: t}
	_, port, err = net.SplitHostPort(s.Addr)
	require.NoError(t, err)
	s.process = exec.Command(Binary(t), config, "--sentinel", "--bind", "127.0.0.1", "--port", port)
	require.NoError(t, s.process.Start())
	t.Cleanup(s.Kill)
	s.awaitUp()
	return s
}
