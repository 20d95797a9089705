package accesslog

import (
	"bytes"
	"fmt"

	"github.com/tidwall/gjson"
)

// detect returns the format of a log with that first line.
func detect(line []byte) (Format, error) {
	switch trimmed := bytes.TrimSpace(line); {
	case bytes.HasPrefix(trimmed, []byte("{")):
		if gjson.GetBytes(trimmed, "request").IsObject() && gjson.GetBytes(trimmed, "ts").Exists() {
			return Caddy, nil
		}
		return JSON, nil
	case bytes.Contains(trimmed, []byte(" [")):
		return CLF, nil
	case bytes.Contains(trimmed, []byte(",")):
		return CSV, nil
	default:
		return "", fmt.Errorf("the format of the log is not clear from its first line %.80q: name it with -format", trimmed)
	}
}
