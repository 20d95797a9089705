package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/httplimit"
)

var tenNet = netip.MustParsePrefix("10.0.0.0/8")

func TestTrustedHeader(t *testing.T) {
	for _, name := range []string{"CF-Connecting-IP", "X-Real-IP", "fly-client-ip"} {
		keyOf := asker(t, httplimit.WithTrustedHeader(name, tenNet), httplimit.WithTrustedHeader(strings.ToUpper(name), netip.MustParsePrefix("::ffff:172.16.0.0/108")))
		for _, c := range []struct {
			peer  string
			lines []string
			want  string
		}{
			{"10.0.0.5:1", []string{"203.0.113.7"}, "203.0.113.7"},
			{"172.16.1.1:1", []string{" 203.0.113.7\t"}, "203.0.113.7"},
			{"[::ffff:10.0.0.5]:1", []string{"2001:db8:1:2::1"}, "2001:db8:1:2::/64"},
			{"10.0.0.5:1", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
			{"10.0.0.5:1", []string{"[2001:db8::1]:443"}, "2001:db8::/64"},
			{"10.0.0.5:1", []string{"10.0.0.9"}, "10.0.0.9"}, // a client inside
			{"192.0.2.9:1", []string{"203.0.113.7"}, "192.0.2.9"},
			{"10.0.0.5:1", nil, "10.0.0.5"},
			{"10.0.0.5:1", []string{""}, "10.0.0.5"},
			{"10.0.0.5:1", []string{"unknown"}, "10.0.0.5"},
			{"10.0.0.5:1", []string{"203.0.113.7", "203.0.113.7"}, "10.0.0.5"},
			{"10.0.0.5:1", []string{"198.51.100.1, 203.0.113.7"}, "10.0.0.5"},
			{"@", []string{"203.0.113.7"}, "@"},
		} {
			require.Equal(t, c.want, keyOf(from(c.peer), header(name, c.lines...), header("X-Forwarded-For", "198.51.100.99")), "%s: %+v", name, c)
		}
	}
}

// Applying an option does not change it, nor the other middlewares that it was applied to.
func TestOptionsCanBeUsedAgain(t *testing.T) {
	again := httplimit.WithTrustedHeader("X-Real-IP", tenNet)
	asker(t, again)
	asker(t, again)
	keyOf := asker(t, again, httplimit.WithTrustedHeader("X-Real-IP", netip.MustParsePrefix("172.16.0.0/12")))
	asker(t, again)
	for _, peer := range []string{"10.0.0.5:1", "172.16.1.1:1"} {
		require.Equal(t, "203.0.113.7", keyOf(from(peer), header("X-Real-IP", "203.0.113.7")), peer)
	}
}

func TestForwarded(t *testing.T) { // RFC 7239
	keyOf := asker(t, httplimit.WithForwarded(tenNet), httplimit.WithForwarded(netip.MustParsePrefix("fd00::/8")))
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{`for=203.0.113.7`}, "203.0.113.7"},
		{[]string{`For="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{[]string{`for=192.0.2.60;proto=http;by=203.0.113.43`}, "192.0.2.60"},
		{[]string{`proto=http; FOR = 192.0.2.60 ; by=203.0.113.43`}, "192.0.2.60"},
		{[]string{`for=192.0.2.43, for=198.51.100.17`}, "198.51.100.17"},
		{[]string{`for=192.0.2.43, for=198.51.100.17;by="a,b;c", for="10.1.1.1:80"`}, "198.51.100.17"},
		{[]string{`for=192.0.2.43`, `for=198.51.100.17`, `for="[fd00::1]"`}, "198.51.100.17"},
		{[]string{`for="203.0.113.7:_port"`}, "203.0.113.7"},
		{[]string{`for="[2001:db8::1]:_port"`}, "2001:db8::/64"},
		{[]string{`for="::ffff:203.0.113.7"`}, "203.0.113.7"},
		{[]string{`for=10.1.1.1`}, "10.1.1.1"},
		// An element without an address ends the list.
		{[]string{`for=203.0.113.7, for=unknown`}, "10.0.0.5"},
		{[]string{`for=203.0.113.7, for=_hidden, for=10.2.2.2`}, "10.2.2.2"},
		{[]string{`for=203.0.113.7, proto=http`}, "10.0.0.5"},
		{[]string{`for=203.0.113.7;for=198.51.100.17`}, "10.0.0.5"},
		{[]string{`for="203.0.113.7`}, "10.0.0.5"},
		{[]string{`for=`}, "10.0.0.5"}, {[]string{``}, "10.0.0.5"}, {[]string{`,`}, "10.0.0.5"}, {[]string{`"`}, "10.0.0.5"}, {[]string{`for`}, "10.0.0.5"},
		// Quoted text is not a separator, and a quote that the client opens does not change the proxy's element.
		{[]string{`for=198.51.100.17;host="x, for=203.0.113.7"`}, "198.51.100.17"},
		{[]string{`for=198.51.100.17;host="x\", for=203.0.113.7"`}, "198.51.100.17"},
		{[]string{`for=198.51.100.17;host="x\\", for=203.0.113.7`}, "203.0.113.7"},
		{[]string{`for=198.51.100.17;host="x, y\"z"`}, "198.51.100.17"},
		{[]string{`for=198.51.100.17;host="x;for=203.0.113.7"`}, "198.51.100.17"},
		{[]string{`for=", for=203.0.113.7`}, "203.0.113.7"},
		{[]string{`for="\, for="203.0.113.7"`}, "203.0.113.7"},
	} {
		require.Equal(t, c.want, keyOf(from("10.0.0.5:1"), header("Forwarded", c.lines...)), "%q", c.lines)
	}
	require.Equal(t, "192.0.2.9", keyOf(from("192.0.2.9:1"), header("Forwarded", "for=203.0.113.7")), "not a trusted peer")
	require.Equal(t, "10.0.0.5", keyOf(from("10.0.0.5:1"), header("X-Forwarded-For", "203.0.113.7")), "another field")
}

func TestTrustedHops(t *testing.T) {
	for _, c := range []struct {
		hops  int
		lines []string
		want  string
	}{
		{1, []string{"198.51.100.66, 203.0.113.7"}, "203.0.113.7"},
		{1, []string{"198.51.100.66", "203.0.113.7:80"}, "203.0.113.7"},
		{2, []string{"192.0.2.1, 198.51.100.66, 203.0.113.7"}, "198.51.100.66"},
		{2, []string{"192.0.2.1", "198.51.100.66", "203.0.113.7"}, "198.51.100.66"},
		{3, []string{"192.0.2.1", "198.51.100.66", "[2001:db8::1]"}, "192.0.2.1"},
		{9, []string{"192.0.2.1", "203.0.113.7"}, "192.0.2.1"},
		{2, []string{"192.0.2.1, unknown"}, "10.0.0.5"},
		{2, []string{"unknown, 192.0.2.1"}, "192.0.2.1"},
		{1, nil, "10.0.0.5"},
	} {
		require.Equal(t, c.want, asker(t, httplimit.WithTrustedHops(c.hops))(from("10.0.0.5:1"), header("X-Forwarded-For", c.lines...)), "%+v", c)
	}
	socket := asker(t, httplimit.WithTrustedHops(1))
	require.Equal(t, "203.0.113.7", socket(from("@"), header("X-Forwarded-For", "203.0.113.7")), "a proxy on a Unix socket")
	require.Equal(t, "@", socket(from("@")))
}

func TestBadSourcesOfAddressesAreStartUpErrors(t *testing.T) {
	sources := map[string]httplimit.Option{
		"proxies": httplimit.WithTrustedProxies(tenNet), "hops": httplimit.WithTrustedHops(1), "forwarded": httplimit.WithForwarded(tenNet),
		"header": httplimit.WithTrustedHeader("X-Real-IP", tenNet), "another header": httplimit.WithTrustedHeader("CF-Connecting-IP", tenNet),
	}
	bad := map[string][]httplimit.Option{
		"no proxy": {httplimit.WithTrustedProxies()}, "no proxy of Forwarded": {httplimit.WithForwarded()}, "no peer": {httplimit.WithTrustedHeader("X-Real-IP")},
		"no proxy, and one": {httplimit.WithTrustedProxies(tenNet), httplimit.WithTrustedProxies()},
		"no hop":            {httplimit.WithTrustedHops(0)}, "fewer": {httplimit.WithTrustedHops(-1)}, "hops twice": {httplimit.WithTrustedHops(1), httplimit.WithTrustedHops(2)},
		"no name": {httplimit.WithTrustedHeader("", tenNet)}, "a bad name": {httplimit.WithTrustedHeader("X Real", tenNet)},
		"a bad prefix": {httplimit.WithForwarded(tenNet, netip.Prefix{})}, "a bad peer": {httplimit.WithTrustedHeader("X-Real-IP", netip.Prefix{})},
	}
	for a, first := range sources {
		for b, second := range sources {
			if a != b {
				bad[a+" and "+b] = []httplimit.Option{first, second}
			}
		}
	}
	for name, opts := range bad {
		_, err := httplimit.New(fixed{OK: true}, opts...)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
		_, err = httplimit.AddressKey(opts...)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
	}
}

func TestAddressKey(t *testing.T) {
	byAddress, err := httplimit.AddressKey()
	require.NoError(t, err)
	r := httptest.NewRequest("GET", "/", nil)
	require.Equal(t, "192.0.2.1", byAddress(r))

	byAddress, err = httplimit.AddressKey(httplimit.WithTrustedHeader("X-Real-IP", netip.MustParsePrefix("192.0.2.0/24")), httplimit.WithIPv6Prefix(48))
	require.NoError(t, err)
	r.Header.Set("X-Real-IP", "2001:db8:1:2::3")
	require.Equal(t, "2001:db8:1::/48", byAddress(r))

	keyOf := asker(t, httplimit.WithKey(func(r *http.Request) string { return r.Method + " " + byAddress(r) }))
	require.Equal(t, "GET 203.0.113.7", keyOf(header("X-Real-IP", "203.0.113.7")))

	for name, opt := range map[string]httplimit.Option{
		"a key": httplimit.WithKeyHeader("X-Tenant"), "a cost": costing(2), "nil": nil, "bits": httplimit.WithIPv6Prefix(0),
	} {
		_, err := httplimit.AddressKey(opt)
		require.ErrorIs(t, err, tokenbucket.ErrInvalidOption, name)
	}
	_, err = httplimit.AddressKey(httplimit.WithIPv6Prefix(48), nil)
	require.ErrorContains(t, err, "option 1 is nil")
}

// Text from a client does not change the address that the nearest proxy has written.
func FuzzForwarded(f *testing.F) {
	for _, line := range []string{`for=192.0.2.1`, `for="`, `for="[2001:db8::1]:80";by="a,b"`, `"\`, `\"`, `,;="`, ``, `for=_x, for=unknown`, "for=\"\\\\\""} {
		f.Add(line)
	}
	keyOf := asker(f, httplimit.WithForwarded(tenNet))
	f.Fuzz(func(t *testing.T, line string) {
		keyOf(from("10.0.0.5:1"), header("Forwarded", line))
		for _, own := range []string{`for=203.0.113.7`, `by="a, \"b\\";for="203.0.113.7:1"`} {
			require.Equal(t, "203.0.113.7", keyOf(from("10.0.0.5:1"), header("Forwarded", line+", "+own)))
			require.Equal(t, "203.0.113.7", keyOf(from("10.0.0.5:1"), header("Forwarded", line, own)))
		}
	})
}
