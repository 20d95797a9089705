package redisbucket_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/internal/testing/redistest"
	"github.com/aa014e13/tokenbucket/redisbucket"
)

// real is a server that the test starts, and a client.
type real struct {
	*redistest.Server
	*redis.Client
	t *testing.T
}

func startReal(t *testing.T, args ...string) *real {
	t.Helper()
	s := redistest.Start(t, args...)
	return &real{s, newClient(t, s.Addr), t}
}

// info returns a number from INFO.
func (r *real) info(name string) string {
	r.t.Helper()
	text, err := r.Info(background, "everything").Result()
	require.NoError(r.t, err)
	for line := range strings.SplitSeq(text, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return value
		}
	}
	return ""
}

// requireTTLs checks that no key lives forever.
func (r *real) requireTTLs() {
	r.t.Helper()
	keys, err := r.Keys(background, "*").Result()
	require.NoError(r.t, err)
	for _, key := range keys {
		left, err := r.PTTL(background, key).Result()
		require.NoError(r.t, err)
		require.NotEqual(r.t, time.Duration(-1), left, key)
	}
}

const (
	processes  = 8
	goroutines = 8
)

func TestProcessesTogetherGetTheLimit(t *testing.T) {
	r := startReal(t)
	j := job{Addr: r.Server.Addr, Limit: limit(1000, 1000), Goroutines: goroutines, For: 2 * sec}
	s := sum(t, startAll(t, processes, j))
	require.Zero(t, s.failures)
	s.requireWithin(t, j.Limit, 0.99)
	r.requireTTLs()
}

func TestScriptFlushInTheMiddle(t *testing.T) {
	r := startReal(t)
	j := job{Addr: r.Server.Addr, Limit: limit(1000, 1000), Goroutines: goroutines, For: 2 * sec}
	all := startAll(t, processes, j)
	for range 10 {
		time.Sleep(150 * ms)
		require.NoError(t, r.ScriptFlush(background).Err())
	}
	s := sum(t, all)
	require.Zero(t, s.failures)
	s.requireWithin(t, j.Limit, 0.99)
}

func TestServerIsRestartedInTheMiddle(t *testing.T) {
	r := startReal(t)
	j := job{Addr: r.Server.Addr, Limit: limit(1000, 1000), Goroutines: goroutines, For: 5 * sec}
	all := startAll(t, processes, j)
	time.Sleep(sec)
	r.Kill()
	awaitFailures(all)
	r.Restart()
	s := sum(t, all)
	require.Positive(t, s.failures)
	// The server lost its data, so the bucket was full twice.
	s.requireAtMost(t, 2*j.Limit.Capacity, j.Limit.RefillPerSec)
	require.NotEmpty(t, r.info("cmdstat_evalsha"), "it was used afterwards")
	r.requireTTLs()
}

func TestRefusalWritesNothing(t *testing.T) {
	r := startReal(t)
	b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(1, 1e-3), limit(5, 1)})
	_, ok, err := b.TryAcquire(background, "key", 1)
	require.NoError(t, err)
	require.True(t, ok)
	changes, value := r.info("rdb_changes_since_last_save"), r.Get(background, "tokenbucket:key").Val()
	ctx, cancel := context.WithTimeout(background, sec)
	defer cancel()
	for range 100 {
		_, ok, err := b.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.False(t, ok)
		d, err := b.Take(background, "key", 1)
		require.NoError(t, err)
		require.False(t, d.OK)
		require.ErrorIs(t, b.Wait(ctx, "key", 1), context.DeadlineExceeded)
		_, err = b.Take(background, "key", 0)
		require.NoError(t, err)
		_, err = b.Take(background, "new", -1)
		require.NoError(t, err)
	}
	require.Equal(t, changes, r.info("rdb_changes_since_last_save"))
	require.Contains(t, r.info("cmdstat_set"), "calls=1,")
	require.Equal(t, value, r.Get(background, "tokenbucket:key").Val())
}

func TestSourcegraph56548NoKeyWithoutTTL(t *testing.T) {
	r := startReal(t)
	limits := [][]tokenbucket.Limit{
		{limit(1, 3000)}, // full in a third of a millisecond
		{limit(1<<42, 0.1)},
		{limit(3, 1.0/15), limit(100, 1)},
		{limit(10, 1e-11)},
	}
	for i, ls := range limits {
		b := newBuckets(t, r.Client, ls)
		for key := range 3 {
			name := fmt.Sprint(key, " ", i%3) // some meet other limits than they were written with
			for range 5 {
				_, err := b.Take(background, name, 1)
				require.NoError(t, err)
				r.requireTTLs()
				require.NoError(t, b.Refund(background, name, 0.5))
				r.requireTTLs()
			}
			ctx, cancel := context.WithTimeout(background, ms)
			_ = b.Wait(ctx, name, 1)
			cancel()
			r.requireTTLs()
			require.NoError(t, b.Forget(background, name))
		}
	}
}

func TestAspnetcoreRedis46TTLIsTheTimeToFill(t *testing.T) {
	r := startReal(t)
	b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(3, 1.0/15)})
	begin := time.Now()
	for range 3 {
		_, ok, err := b.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.True(t, ok)
	}
	left := r.PTTL(background, "tokenbucket:key").Val()
	require.GreaterOrEqual(t, left, 45*sec-time.Since(begin)-10*ms)
	require.LessOrEqual(t, left, 45*sec)
}

func TestWaitsSufficeOnARealServer(t *testing.T) {
	r := startReal(t)
	b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(1, 100)})
	for range 20 {
		wait, ok, err := b.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		if !ok {
			require.LessOrEqual(t, wait, 10*ms)
			require.Positive(t, wait)
			time.Sleep(wait)
			_, ok, err = b.TryAcquire(background, "key", 1)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	begin := time.Now()
	for range 20 {
		require.NoError(t, b.Wait(background, "key", 1))
	}
	require.GreaterOrEqual(t, time.Since(begin), 190*ms, "never too early")
}

func TestFullAgainIsForgotten(t *testing.T) {
	r := startReal(t)
	b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(1, 50)})
	_, ok, err := b.TryAcquire(background, "key", 1)
	require.NoError(t, err)
	require.True(t, ok)
	require.Eventually(t, func() bool { return r.DBSize(background).Val() == 0 }, 30*sec, 5*ms)
}

func TestWhatARealServerRefuses(t *testing.T) {
	take := func(b *redisbucket.Buckets, key string) error {
		_, err := b.Take(background, key, 1)
		return err
	}
	t.Run("a key of another type", func(t *testing.T) {
		r := startReal(t)
		b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(5, 1)})
		require.NoError(t, r.LPush(background, "tokenbucket:list", 1).Err())
		err := take(b, "list")
		require.ErrorIs(t, err, redisbucket.ErrForeignKey)
		require.ErrorContains(t, err, `"tokenbucket:list"`)
	})
	t.Run("a replica", func(t *testing.T) {
		r := startReal(t)
		b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(5, 1)})
		require.NoError(t, take(b, "key"))
		require.NoError(t, r.Do(background, "REPLICAOF", "127.0.0.1", "1").Err())
		err := take(b, "key")
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		require.ErrorContains(t, err, "READONLY")
		require.ErrorContains(t, err, "connect to the master")
		require.ErrorContains(t, err, r.Server.Addr)
		var answered redis.Error
		require.ErrorAs(t, err, &answered)
		require.True(t, redis.HasErrorPrefix(answered, "READONLY"), "go-redis has to know it, to connect anew: %v", answered)
		require.NoError(t, r.Do(background, "REPLICAOF", "NO", "ONE").Err())
		require.NoError(t, take(b, "key"), "the next call works")
	})
	t.Run("out of memory", func(t *testing.T) {
		r := startReal(t)
		b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(5, 1)})
		require.NoError(t, take(b, "key"))
		require.NoError(t, r.ConfigSet(background, "maxmemory", "1").Err())
		err := take(b, "key")
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		require.ErrorContains(t, err, "more memory")
		require.NoError(t, r.ConfigSet(background, "maxmemory", "0").Err())
		require.NoError(t, take(b, "key"))
	})
	t.Run("no password", func(t *testing.T) {
		s := redistest.Start(t, "--requirepass", "secret")
		err := take(newBuckets(t, newClient(t, s.Addr), []tokenbucket.Limit{limit(5, 1)}), "key")
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		require.ErrorContains(t, err, "check user and password")
	})
}

func TestFrozenServer(t *testing.T) {
	r := startReal(t)
	limits := []tokenbucket.Limit{limit(10, 1e-6)}
	_, err := newBuckets(t, r.Client, limits).Take(background, "key", 1)
	require.NoError(t, err)
	b := newBuckets(t, r.Client, limits, redisbucket.WithTimeout(300*ms))
	r.Freeze()
	ctx, cancel := context.WithTimeout(background, 50*ms)
	defer cancel()
	_, err = b.Take(ctx, "key", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = b.Take(background, "key", 1)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
	r.Thaw()
	require.Eventually(t, func() bool {
		d, err := b.Take(background, "key", 0)
		return err == nil && d.Tokens >= 8-1e-3
	}, 30*sec, 20*ms, "at most the one whose answer was lost is gone")
}

// meet makes a cluster of servers, each with a share of the slots. When it returns, every
// server knows them all, and none of them takes another for dead because the machine is busy.
func meet(t *testing.T, servers []*redistest.Server) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for i, s := range servers {
		addrs = append(addrs, s.Addr)
		client := newClient(t, s.Addr)
		begin, end := i*16384/len(servers), (i+1)*16384/len(servers)-1
		require.NoError(t, client.ClusterAddSlotsRange(background, begin, end).Err())
		host, port, _ := strings.Cut(servers[0].Addr, ":")
		require.NoError(t, client.ClusterMeet(background, host, port).Err())
	}
	awaitWhole(t, servers)
	for _, s := range servers { // not earlier: a cluster with a long timeout is whole later
		require.NoError(t, newClient(t, s.Addr).ConfigSet(background, "cluster-node-timeout", "60000").Err())
	}
	awaitWhole(t, servers)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = cluster.Close() })
	return cluster
}

// awaitWhole waits until every server of a cluster knows the others, and for each slot a
// server that answers. Without cluster-require-full-coverage, cluster_state:ok alone does not
// say that.
func awaitWhole(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	want := []string{"cluster_state:ok\r\n", "cluster_slots_ok:16384\r\n", fmt.Sprintf("cluster_known_nodes:%d\r\n", len(servers))}
	for _, s := range servers {
		client := newClient(t, s.Addr)
		require.Eventually(t, func() bool {
			info := client.ClusterInfo(background).Val()
			return !slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(info, line) })
		}, time.Minute, 50*ms, s.Addr)
	}
}

func TestCluster(t *testing.T) { // limiters#48
	servers := redistest.Cluster(t, 3)
	cluster := meet(t, servers)
	b := newBuckets(t, cluster, []tokenbucket.Limit{limit(2, 1e-6), limit(10, 1e-6)}, redisbucket.WithTimeout(10*sec))
	take := func(key string) (bool, error) {
		_, ok, err := b.TryAcquire(background, key, 1)
		return ok, err
	}
	const keys = 60
	for _, want := range []bool{true, true, false} {
		for i := range keys {
			ok, err := take(fmt.Sprint("key ", i))
			require.NoError(t, err)
			require.Equal(t, want, ok)
		}
	}
	var stored []int
	for _, s := range servers {
		n := int(newClient(t, s.Addr).DBSize(background).Val())
		require.Positive(t, n)
		stored = append(stored, n)
	}
	require.Equal(t, keys, stored[0]+stored[1]+stored[2], "one key for each bucket")

	servers[0].Kill()
	failed, served := 0, 0
	for i := range 2 * keys {
		begin := time.Now()
		if _, err := take(fmt.Sprint("other ", i)); err != nil {
			require.ErrorIs(t, err, redisbucket.ErrUnavailable)
			require.ErrorContains(t, err, servers[0].Addr)
			failed++
		} else {
			served++
		}
		require.Less(t, time.Since(begin), 20*sec)
	}
	require.Positive(t, failed)
	require.Greater(t, served, keys/2, "one server's failure is not the others'")
}

func TestSentinelFailover(t *testing.T) {
	master := redistest.Start(t)
	host, port, _ := strings.Cut(master.Addr, ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	require.Eventually(t, func() bool {
		return strings.Contains(newClient(t, replica.Addr).Info(background, "replication").Val(), "master_link_status:up")
	}, 30*sec, 50*ms)
	sentinel := redistest.StartSentinel(t, "main", master.Addr)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{sentinel.Addr}})
	t.Cleanup(func() { _ = client.Close() })
	b := newBuckets(t, client, []tokenbucket.Limit{limit(10, 1e-6)})
	for range 3 {
		_, err := b.Take(background, "key", 1)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		return newClient(t, replica.Addr).Exists(background, "tokenbucket:key").Val() == 1 &&
			strings.Contains(newClient(t, sentinel.Addr).Info(background, "sentinel").Val(), "slaves=1")
	}, 30*sec, 50*ms)
	master.Kill()
	require.NoError(t, newClient(t, sentinel.Addr).Do(background, "SENTINEL", "SET", "main", "down-after-milliseconds", "1000").Err())
	_, err := b.Take(background, "key", 0)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
	require.ErrorContains(t, err, "the master that Sentinel names")
	require.Eventually(t, func() bool {
		d, err := b.Take(background, "key", 0)
		return err == nil && d.Tokens < 8
	}, 60*sec, 50*ms, "the replica takes over what was there")
	_, ok, err := b.TryAcquire(background, "key", 7)
	require.NoError(t, err)
	require.True(t, ok)
}

// The commands that the README and the error texts name are enough, and all of them are
// needed.
func TestRightsOfTheUser(t *testing.T) {
	r := startReal(t)
	needed := []string{"evalsha", "eval", "time", "get", "set", "del"}
	use := func(commands []string) error {
		args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~tokenbucket:*", "-@all"}
		for _, c := range commands {
			args = append(args, "+"+c)
		}
		require.NoError(t, r.Do(background, args...).Err())
		require.NoError(t, r.ScriptFlush(background).Err())
		client := redis.NewClient(&redis.Options{Addr: r.Server.Addr, Username: "limiter", Password: "secret"})
		t.Cleanup(func() { _ = client.Close() })
		b := newBuckets(t, client, []tokenbucket.Limit{limit(5, 1)})
		for range 2 { // the script is loaded again, then known
			if _, err := b.Take(background, "key", 1); err != nil {
				return err
			}
		}
		return b.Forget(background, "key")
	}
	require.NoError(t, use(needed))
	for i, c := range needed {
		err := use(slices.Delete(slices.Clone(needed), i, i+1))
		require.ErrorIs(t, err, redisbucket.ErrUnavailable, "without %s", c)
		require.ErrorContains(t, err, "check user and password", "without %s", c)
	}
}

func TestRightsOfTheUserOfACluster(t *testing.T) {
	servers := redistest.Cluster(t, 2)
	_ = meet(t, servers)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
		require.NoError(t, newClient(t, s.Addr).Do(background, "ACL", "SETUSER", "limiter", "on", ">secret", "~tokenbucket:*",
			"-@all", "+evalsha", "+eval", "+time", "+get", "+set", "+del", "+cluster").Err())
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "limiter", Password: "secret"})
	t.Cleanup(func() { _ = cluster.Close() })
	b := newBuckets(t, cluster, []tokenbucket.Limit{limit(5, 1)})
	for i := range 10 {
		_, err := b.Take(background, fmt.Sprint(i), 1)
		require.NoError(t, err)
	}
}

func TestBothProtocols(t *testing.T) {
	r := startReal(t)
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: r.Server.Addr, Protocol: protocol})
		t.Cleanup(func() { _ = client.Close() })
		b := newBuckets(t, client, []tokenbucket.Limit{limit(2, 1e-6)})
		key := fmt.Sprint("protocol ", protocol)
		for _, want := range []bool{true, true, false} {
			d, err := b.Take(background, key, 1)
			require.NoError(t, err)
			require.Equal(t, want, d.OK)
		}
		require.NoError(t, b.Refund(background, key, 1))
		d, err := b.Take(background, key, 0)
		require.NoError(t, err)
		require.Equal(t, int64(1), d.Remaining())
		require.NoError(t, r.LPush(background, "tokenbucket:"+key+" list", 1).Err())
		_, err = b.Take(background, key+" list", 1)
		require.ErrorIs(t, err, redisbucket.ErrForeignKey)
	}
}

// A replica gets the effects of the script, not the script. It gets nothing for a
// refusal.
func TestReplicaGetsTheValue(t *testing.T) {
	r := startReal(t)
	host, port, _ := strings.Cut(r.Server.Addr, ":")
	replica := newClient(t, redistest.Start(t, "--replicaof", host, port).Addr)
	require.Eventually(t, func() bool {
		return strings.Contains(replica.Info(background, "replication").Val(), "master_link_status:up")
	}, 30*sec, 50*ms)
	require.NoError(t, r.ConfigSet(background, "repl-ping-replica-period", "3600").Err())
	b := newBuckets(t, r.Client, []tokenbucket.Limit{limit(2, 1e-6)})
	take := func(want bool) {
		_, ok, err := b.TryAcquire(background, "key", 2)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
	take(true)
	value := r.Get(background, "tokenbucket:key").Val()
	require.Eventually(t, func() bool { return replica.Get(background, "tokenbucket:key").Val() == value }, 30*sec, 10*ms)
	require.Positive(t, replica.PTTL(background, "tokenbucket:key").Val())
	require.NotContains(t, replica.Info(background, "commandstats").Val(), "cmdstat_eval")
	sent := r.info("master_repl_offset")
	for range 100 {
		take(false)
	}
	if now := r.info("master_repl_offset"); now != sent { // the server's own chatter at most
		before, _ := strconv.Atoi(sent)
		after, _ := strconv.Atoi(now)
		require.Less(t, after-before, 100)
	}
}

func TestClusterTakesAnyKey(t *testing.T) {
	cluster := meet(t, redistest.Cluster(t, 3))
	b := newBuckets(t, cluster, []tokenbucket.Limit{limit(1, 1e-6)})
	tagged := newBuckets(t, cluster, []tokenbucket.Limit{limit(1, 1e-6)}, redisbucket.WithPrefix("{tag}:"))
	for _, key := range []string{"", "{", "}", "{}", "{}x", "{x}y", "{x}z", "x{y}{z}", "}{", "\x00\xff\r\n", strings.Repeat("{", 1000)} {
		for _, each := range []*redisbucket.Buckets{b, tagged} {
			for _, want := range []bool{true, false} {
				_, ok, err := each.TryAcquire(background, key, 1)
				require.NoError(t, err, "%q", key)
				require.Equal(t, want, ok, "%q", key)
			}
		}
	}
}

// A cluster client sends a request again by itself if a slot has moved, but never if an
// answer was lost.
func TestLostReplyInAClusterSpendsOnce(t *testing.T) {
	servers := redistest.Cluster(t, 3)
	_ = meet(t, servers)
	proxies := map[string]*redistest.Proxy{}
	for _, s := range servers {
		proxies[s.Addr] = redistest.NewProxy(func() (net.Conn, error) { return net.Dial("tcp", s.Addr) })
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{servers[0].Addr},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return proxies[addr].Dial(ctx, network, addr)
		},
	})
	t.Cleanup(func() { _ = cluster.Close() })
	b := newBuckets(t, cluster, []tokenbucket.Limit{limit(10, 1e-6)}, redisbucket.WithBreak(0), redisbucket.WithTimeout(5*sec))
	for i := range 12 {
		key := fmt.Sprint("key ", i)
		_, err := b.Take(background, key, 1)
		require.NoError(t, err)
		runs := 0
		for _, p := range proxies {
			runs += p.Runs()
			p.Next(redistest.LoseReply, "")
		}
		_, err = b.Take(background, key, 1)
		require.ErrorIs(t, err, redisbucket.ErrUnavailable)
		for _, p := range proxies {
			runs -= p.Runs()
			p.Next(redistest.None, "")
		}
		require.Equal(t, -1, runs, "it is not sent again")
		d, err := b.Take(background, key, 0)
		require.NoError(t, err)
		require.Equal(t, int64(8), d.Remaining(), "spent once")
	}
}

// A slot moves while buckets of its keys are in use. The states of the buckets move with
// it.
func TestClusterMovesASlot(t *testing.T) {
	servers := redistest.Cluster(t, 2)
	cluster := meet(t, servers)
	b := newBuckets(t, cluster, []tokenbucket.Limit{limit(10, 1e-6)})
	const key = "tokenbucket:key"
	remaining := int64(10)
	take := func(when string) {
		t.Helper()
		d, err := b.Take(background, "key", 1)
		require.NoError(t, err, when)
		remaining--
		require.Equal(t, remaining, d.Remaining(), when)
	}
	take("before")
	slot := cluster.ClusterKeySlot(background, key).Val()
	from, to := newClient(t, servers[0].Addr), newClient(t, servers[1].Addr)
	if from.Exists(background, key).Err() != nil {
		from, to = to, from
	}
	id := func(c *redis.Client) string { return c.Do(background, "CLUSTER", "MYID").Val().(string) }
	require.NoError(t, to.Do(background, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)).Err())
	require.NoError(t, from.Do(background, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to)).Err())
	take("not moved yet")
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	require.NoError(t, from.Do(background, "MIGRATE", host, port, key, 0, 5000).Err())
	take("ASK")
	for _, c := range []*redis.Client{to, from} {
		require.NoError(t, c.Do(background, "CLUSTER", "SETSLOT", slot, "NODE", id(to)).Err())
	}
	take("MOVED")
	take("after")
}

// counter counts the scripts that pass.
type counter struct{ scripts int }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			c.scripts++
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestHooksRunWhereCommandsEndWithTheirContexts(t *testing.T) {
	s := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	hook := new(counter)
	client.AddHook(hook)
	limits := []tokenbucket.Limit{limit(10, 1)}
	buckets := newBuckets(t, client, limits)
	for range 5 {
		_, ok, err := buckets.TryAcquire(background, "key", 1)
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Equal(t, 6, hook.scripts, "named first, then sent once, then named")
	s.Freeze()
	_, _, err := newBuckets(t, client, limits, redisbucket.WithTimeout(300*ms)).TryAcquire(background, "key", 1)
	require.ErrorIs(t, err, redisbucket.ErrUnavailable)
}
