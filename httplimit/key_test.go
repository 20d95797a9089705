package httplimit_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

// asker makes a middleware. It returns a function that sends a request and returns the key
// that the observer got.
func asker(t testing.TB, opts ...httplimit.Option) (keyOf func(with ...func(*http.Request)) string) {
	g := newGateway(t, tenHalf, opts...)
	return func(with ...func(*http.Request)) string {
		g.get("/", with...)
		key := g.lastEvent().Key
		g.events = nil
		return key
	}
}

func TestKeysByAddress(t *testing.T) { // floe#469
	keyOf := asker(t)
	for addr, want := range map[string]string{
		"192.0.2.1:1":               "192.0.2.1",
		"192.0.2.1":                 "192.0.2.1",
		"255.255.255.255:65535":     "255.255.255.255",
		"0.0.0.0:0":                 "0.0.0.0",
		"[::ffff:192.0.2.1]:80":     "192.0.2.1",
		"::ffff:192.0.2.1":          "192.0.2.1",
		"[::ffff:c000:201]:80":      "192.0.2.1",
		"[2001:db8:1:2::1]:5":       "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::9]:6":  "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::9":      "2001:db8:1:2::/64",
		"[2001:db8:1:3::1]:5":       "2001:db8:1:3::/64",
		"[2001:0DB8:1:3::1]:5":      "2001:db8:1:3::/64",
		"[fe80::1%eth0]:7":          "fe80::/64",
		"fe80::1%eth0":              "fe80::/64",
		"[fe80::2%eth1]":            "fe80::/64",
		"[::ffff:192.0.2.1%eth0]:7": "192.0.2.1",
		"[::1]:1":                   "::/64",
		// These are not addresses. They are keys themselves, without the port.
		"@": "@", "": "", "gateway:80": "gateway", "gateway:81": "gateway", "[::1": "[::1", "192.0.2.01:1": "192.0.2.01",
		"[192.0.2.1]:1": "192.0.2.1", "192.0.2.1:99999": "192.0.2.1", "1.2.3.4.5:1": "1.2.3.4.5",
	} {
		require.Equal(t, want, keyOf(from(addr)), addr)
	}
	peer := from("[2001:db8:1:2:3:4:5:6]:1")
	require.Equal(t, "2001:db8::/32", asker(t, httplimit.WithIPv6Prefix(32))(peer))
	require.Equal(t, "2001:db8:1:2:3:4:5:6/128", asker(t, httplimit.WithIPv6Prefix(128))(peer))
	require.Equal(t, "192.0.2.1", asker(t, httplimit.WithIPv6Prefix(1))(from("192.0.2.1:1")))
}

func TestTenPortsAreOneClient(t *testing.T) { // ezauth#147
	for _, host := range []string{"192.0.2.1", "[2001:db8::1]", "[::ffff:192.0.2.1]", "gateway"} {
		g := newGateway(t, tenHalf)
		for _, port := range strings.Fields("1 2 3 4 5 6 7 8 9 65535") {
			require.Equal(t, 200, g.get("/", from(host+":"+port)).StatusCode)
		}
		require.Equal(t, 429, g.get("/", from(host+":10")).StatusCode, host)
		require.Equal(t, 200, g.get("/", from("203.0.113.1:10")).StatusCode, "another client")
	}
}

func TestTrustedProxies(t *testing.T) { // tollbooth#2
	keyOf := asker(t, httplimit.WithTrustedProxies(netip.MustParsePrefix("10.0.0.0/8")), httplimit.WithTrustedProxies(
		netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::ffff:172.16.0.0/108")))
	for _, c := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"10.0.0.5:1", []string{"198.51.100.66", "203.0.113.7"}, "203.0.113.7"},
		{"192.0.2.9:1", []string{"198.51.100.66"}, "192.0.2.9"},
		{"10.0.0.5:1", nil, "10.0.0.5"},
		{"10.0.0.5:1", []string{"198.51.100.66, 203.0.113.7:8080 , 10.9.9.9"}, "203.0.113.7"},
		{"10.0.0.5:1", []string{"198.51.100.66", "10.1.1.1,\t10.2.2.2"}, "198.51.100.66"},
		{"10.0.0.5:1", []string{"10.1.1.1"}, "10.1.1.1"},
		{"10.0.0.5:1", []string{"10.1.1.1, 10.2.2.2", "10.3.3.3"}, "10.1.1.1"},
		{"[::ffff:10.0.0.5]:1", []string{"[2001:db8::1]:443"}, "2001:db8::/64"},
		{"172.16.1.1:1", []string{"203.0.113.7"}, "203.0.113.7"},
		{"172.32.1.1:1", []string{"203.0.113.7"}, "172.32.1.1"},
		{"[fd00::1%eth0]:1", []string{"[2001:db8::1]"}, "2001:db8::/64"},
		{"[fd00::1]:1", []string{"2001:db8::1"}, "2001:db8::/64"},
		{"10.0.0.5:1", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		{"10.0.0.5:1", []string{"[::ffff:203.0.113.7]:1"}, "203.0.113.7"},
		// A malformed element ends the list: the last valid address counts.
		{"10.0.0.5:1", []string{"198.51.100.66, nonsense"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"198.51.100.66, nonsense, 10.7.7.7"}, "10.7.7.7"},
		{"10.0.0.5:1", []string{"198.51.100.66, unknown", "10.7.7.7"}, "10.7.7.7"},
		{"10.0.0.5:1", []string{"nonsense, 203.0.113.7"}, "203.0.113.7"},
		{"10.0.0.5:1", []string{""}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"203.0.113.7,"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"203.0.113.7:port"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"203.0.113.7:70000"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"203.0.113.07"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"[203.0.113.7]"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"[2001:db8::1"}, "10.0.0.5"},
		{"10.0.0.5:1", []string{"2001:db8::1]"}, "10.0.0.5"},
		// A peer that is not an address is not trusted.
		{"@", []string{"203.0.113.7"}, "@"},
		{"gateway:1", []string{"203.0.113.7"}, "gateway"},
	} {
		require.Equal(t, c.want, keyOf(from(c.peer), header("X-Forwarded-For", c.lines...)), "%+v", c)
	}
	require.Equal(t, "10.0.0.5", asker(t)(from("10.0.0.5:1"), header("X-Forwarded-For", "203.0.113.7")), "nobody is trusted by default")
}

func TestLongForwardedForIsWalked(t *testing.T) {
	keyOf := asker(t, httplimit.WithTrustedProxies(netip.MustParsePrefix("10.0.0.0/8")))
	line := "203.0.113.7" + strings.Repeat(", 10.0.0.1", 10_000)
	require.Equal(t, "203.0.113.7", keyOf(from("10.0.0.5:1"), header("X-Forwarded-For", "198.51.100.66", line)))
}

func TestKeysByHeader(t *testing.T) {
	keyOf := asker(t, httplimit.WithKeyHeader("x-tenant", "X-Team"))
	peer := from("192.0.2.1:5")
	require.Equal(t, "X-Tenant:blue", keyOf(peer, header("X-Tenant", "blue")))
	require.Equal(t, "X-Tenant:blue", keyOf(peer, header("X-Team", "red"), header("X-Tenant", "blue")), "in the order named")
	require.Equal(t, "X-Team:red", keyOf(peer, header("X-Team", "red"), header("X-Tenant", "")))
	require.Equal(t, "192.0.2.1", keyOf(peer))
	require.Equal(t, "192.0.2.1", keyOf(peer, header("X-Tenant", "")))
	require.Equal(t, "192.0.2.1", keyOf(peer, header("X-Tenant")))
	require.Equal(t, "X-Tenant:192.0.2.1", keyOf(peer, header("X-Tenant", "192.0.2.1")), "a value never equals an address")
}

func TestNoFieldPassesForAnAddress(t *testing.T) {
	for _, c := range []struct{ name, value, peer, address string }{
		{"2001", "db8:1:2::/64", "[2001:db8:1:2::1]:5", "!address:2001:db8:1:2::/64"},
		{"2a02", "0:1:2::/64", "[2a02:0:1:2::1]:5", "!address:2a02:0:1:2::/64"},
		{"fe80", ":/64", "[fe80::1]:5", "fe80::/64"}, // the field's name is Fe80 in a key
		{"10.0.0.1", "1", "10.0.0.1:1", "10.0.0.1"},
		{"X-Tenant", "a:1", "X-Tenant:a:1", "!address:X-Tenant:a:1"}, // an outer layer has set RemoteAddr
		{"!address", "2001:db8::/64", "[2001:db8::1]:5", "!address:2001:db8::/64"},
		{"!address", "a:1", "!!address:a:1", "!address:!!address:a:1"},
	} {
		keyOf := asker(t, httplimit.WithKeyHeader(c.name, "2001", "2a02"))
		address, field := keyOf(from(c.peer)), keyOf(from(c.peer), header(c.name, c.value))
		require.Equal(t, c.address, address)
		require.NotEqual(t, address, field)
	}
	require.Equal(t, "!!address:a", asker(t, httplimit.WithKeyHeader("!address"))(header("!address", "a")))
}

func TestAPIKeysAreNotReported(t *testing.T) {
	keyOf := asker(t, httplimit.WithAPIKey("X-API-Key", "Authorization"))
	peer := from("192.0.2.1:5")
	const abc = "ba7816bf8f01cfea414140de5dae2223" // the first half of SHA-256("abc")
	require.Equal(t, "X-Api-Key:"+abc, keyOf(peer, header("X-API-Key", "abc")))
	for _, authorization := range []string{"abc", "Bearer abc", "bearer abc", "BEARER  abc"} {
		require.Equal(t, "Authorization:"+abc, keyOf(peer, header("Authorization", authorization)), authorization)
	}
	require.Equal(t, "192.0.2.1", keyOf(peer))
	require.Equal(t, "192.0.2.1", keyOf(peer, header("X-API-Key", "")))
	require.Equal(t, "192.0.2.1", keyOf(peer, header("Authorization", "Bearer ")))
	require.Len(t, keyOf(peer, header("X-API-Key", strings.Repeat("a", 10_000))), len("X-Api-Key:")+32)

	behind := asker(t, httplimit.WithAPIKey("X-API-Key"), httplimit.WithTrustedProxies(netip.MustParsePrefix("192.0.2.1/32")))
	require.Equal(t, "203.0.113.7", behind(peer, header("X-Forwarded-For", "203.0.113.7")), "without a key, the client's address")
}

func TestNoKeyIsNotFree(t *testing.T) {
	limit := []tokenbucket.Limit{{Capacity: 2, RefillPerSec: 1}}
	for name, g := range map[string]*gateway{
		"a function's": newGateway(t, limit, httplimit.WithKey(func(*http.Request) string { return "" })), // and a peer without an address
		"a peer's":     newGateway(t, limit, httplimit.WithKey(nil)),
	} {
		for _, status := range []int{200, 200, 429} {
			require.Equal(t, status, g.get("/", from("")).StatusCode, name)
		}
	}
}

func TestWithoutAKeyTheAddressCounts(t *testing.T) { // coder#20857
	user := func(r *http.Request) string { return r.Header.Get("X-User") }
	g := newGateway(t, []tokenbucket.Limit{{Capacity: 1, RefillPerSec: 1}}, httplimit.WithKey(user), httplimit.WithKeyHeader("X-Tenant"), httplimit.WithIPv6Prefix(48))
	one, two, six := from("1.1.1.1:1"), from("2.2.2.2:1"), from("[2001:db8:1:2::3]:1")
	for _, peer := range []func(*http.Request){one, two, six} {
		require.Equal(t, 200, g.get("/", peer, header("X-Tenant", "blue")).StatusCode)
		require.Equal(t, 429, g.get("/", peer).StatusCode)
		address := g.lastEvent().Key
		// A user with such a name has another bucket, even if the name looks like the key of
		// an address.
		for _, name := range []string{address, address[1:], "!" + address, strings.TrimPrefix(address, "!address:")} {
			require.Equal(t, 200, g.get("/", peer, header("X-User", name)).StatusCode, name)
			require.NotEqual(t, address, g.lastEvent().Key)
		}
	}
	require.Equal(t, "!address:2001:db8:1::/48", g.events[len(g.events)-5].Key)
	g.get("/", header("X-User", "alice"))
	require.Equal(t, "alice", g.lastEvent().Key)

	behind := asker(t, httplimit.WithKey(user), httplimit.WithTrustedHops(1))
	require.Equal(t, "!address:203.0.113.7", behind(header("X-Forwarded-For", "203.0.113.7")))
}

func TestKeyFunctionOverrides(t *testing.T) {
	keyOf := asker(t, httplimit.WithKey(func(r *http.Request) string { return r.URL.Path }), httplimit.WithKeyHeader("X-Tenant"))
	require.Equal(t, "/", keyOf(header("X-Tenant", "blue")))
}

// parsed returns the address for which s counts. It parses s in another way than the
// package.
func parsed(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil && strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		if addr, err = netip.ParseAddr(s[1 : len(s)-1]); addr.Is4() {
			return addr, false
		}
	}
	if err != nil {
		var addrPort netip.AddrPort
		addrPort, err = netip.ParseAddrPort(s)
		addr = addrPort.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}

// counted returns the key of an address.
func counted(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil {
		return err.Error()
	}
	return prefix.String()
}

func FuzzPeer(f *testing.F) {
	for _, peer := range []string{
		"192.0.2.1:1", "[2001:db8::1]:1", "[fe80::1%eth0]:1", "[::ffff:192.0.2.1]:1", "", "@", ":", "]:[", "[", "[]", "[]:1", "1.2.3.4:", "1.2.3.4:70000", "0.0.0.0",
		"[::ffff:1.2.3.4%z]:1", "::", "%", "fe80::1%", "host:1", "[host]:1", "\x00", "1.2.3.04:1", "255.255.255.255:65535",
	} {
		f.Add(peer)
	}
	keyOf := asker(f)
	f.Fuzz(func(t *testing.T, peer string) {
		key := keyOf(from(peer))
		require.Equal(t, key, keyOf(from(peer)))
		require.Equal(t, key, keyOf(from(peer), header("X-Forwarded-For", "203.0.113.7")))
		if addr, ok := parsed(peer); ok {
			require.Equal(t, counted(addr), key)
			require.Equal(t, key, keyOf(from(netip.AddrPortFrom(addr, 7).String())))
		} else {
			require.Contains(t, peer, key)
		}
	})
}

func FuzzForwardedFor(f *testing.F) {
	f.Add("10.0.0.5:1", "198.51.100.66, 203.0.113.7", "10.1.1.1")
	f.Add("10.0.0.5:1", "198.51.100.66", "203.0.113.7")
	f.Add("[fe80::1%eth0]:1", "[::1", "]")
	f.Add("[fd00::1]:1", "2001:db8::1, [fd00::2]:80", "fd00::3")
	f.Add("10.0.0.5:1", "203.0.113.7, , 10.0.0.1", "")
	f.Add("192.0.2.1:1", "203.0.113.7", "10.0.0.1")
	f.Add("@", ",,,", "::ffff:1.2.3.4")
	f.Add("10.0.0.5:1", strings.Repeat("10.0.0.1,", 1000), "10.0.0.1")
	f.Add("10.0.0.5:1", "10.0.0.1\x00", "\t10.0.0.1 ")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	isTrusted := func(addr netip.Addr) bool { return trusted[0].Contains(addr) || trusted[1].Contains(addr) }
	trusting, untrusting := asker(f, httplimit.WithTrustedProxies(trusted...)), asker(f)
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		with := []func(*http.Request){from(peer), header("X-Forwarded-For", first, second)}
		require.Equal(t, untrusting(from(peer)), untrusting(with...), "nobody is trusted, so the header counts for nothing")

		client, ok := parsed(peer)
		if !ok || !isTrusted(client) {
			require.Equal(t, untrusting(from(peer)), trusting(with...), "the peer is not trusted, so the header counts for nothing")
			return
		}
		elements := strings.Split(first+","+second, ",")
		for len(elements) > 0 && isTrusted(client) {
			addr, ok := parsed(strings.Trim(elements[len(elements)-1], " \t"))
			if !ok {
				break
			}
			client, elements = addr, elements[:len(elements)-1]
		}
		require.Equal(t, counted(client), trusting(with...))
	})
}

func TestKeyHeadersThatNobodySendsAreStartUpErrors(t *testing.T) {
	limiter := httplimit.Shared(tokenbucket.MustNew(tenHalf[0]))
	for _, name := range []string{"", "X Tenant", "X-Tenant:", "X-Tenänt", "a\n", "(a)", "\x7f"} {
		_, err := httplimit.New(limiter, httplimit.WithKeyHeader("X-Team", name))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, "%q", name)
		_, err = httplimit.New(limiter, httplimit.WithAPIKey(name))
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, "%q", name)
	}
	_, err := httplimit.New(limiter, httplimit.WithKeyHeader("x_tenant!#$%&'*+-.^`|~09AZ"))
	require.NoError(t, err)
}

func TestHostCanBeTheKey(t *testing.T) {
	keyOf := asker(t, httplimit.WithKeyHeader("host"))
	require.Equal(t, "Host:blue.example.com", keyOf(func(r *http.Request) { r.Host = "Blue.Example.com" }))
	require.Equal(t, "192.0.2.1", keyOf(func(r *http.Request) { r.Host = "" }))
}

func TestLongValuesMakeShortKeys(t *testing.T) {
	keyOf := asker(t, httplimit.WithKeyHeader("X-Tenant"))
	longest := strings.Repeat("a", 64)
	require.Equal(t, "X-Tenant:"+longest, keyOf(header("X-Tenant", longest)))
	a, b := keyOf(header("X-Tenant", strings.Repeat("a", 1<<20))), keyOf(header("X-Tenant", strings.Repeat("a", 1<<20)+"b"))
	require.Len(t, a, len("X-Tenant:")+32)
	require.NotEqual(t, a, b)
}
