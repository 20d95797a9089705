package simtest

import (
	"bytes"
	"strconv"
	"strings"
)

// nextLocked removes the next command, an array of strings, from the bytes that have
// arrived. It returns nil if the command is not complete.
func (c *conn) nextLocked() []string {
	rest := c.partial
	n, rest, ok := number(rest, '*')
	if !ok {
		return nil
	}
	words := make([]string, n)
	for i := range words {
		var length int
		if length, rest, ok = number(rest, '$'); !ok || len(rest) < length+2 {
			return nil
		}
		words[i], rest = string(rest[:length]), rest[length+2:]
	}
	words[0] = strings.ToLower(words[0])
	c.partial = rest
	return words
}

// number reads a line: a mark and a number.
func number(data []byte, mark byte) (n int, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(data, []byte("\r\n"))
	if !ok || len(line) == 0 || line[0] != mark {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	return n, rest, err == nil
}
