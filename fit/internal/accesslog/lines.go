package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lines is a log with one record per line.
type lines struct {
	reader *bufio.Reader
	parse  func(line []byte) (Record, error)
	number int
	long   []byte // reused for lines longer than the reader's buffer
}

func newLines(r io.Reader) *lines {
	return &lines{reader: bufio.NewReaderSize(r, 1<<16)}
}

// maxLine is the length, in bytes, above which a line counts as broken.
const maxLine = 1 << 20

var byteOrderMark = []byte("\xef\xbb\xbf")

// skipBlanks skips a byte order mark and empty lines at the start.
func (l *lines) skipBlanks() {
	if start, _ := l.reader.Peek(len(byteOrderMark)); bytes.Equal(start, byteOrderMark) {
		l.reader.Discard(len(byteOrderMark))
	}
	for {
		start, _ := l.reader.Peek(1)
		if len(start) == 0 || start[0] != '\n' && start[0] != '\r' {
			return
		}
		if start[0] == '\n' {
			l.number++
		}
		l.reader.Discard(1)
	}
}

// peek returns the first line, or the part of it that fits into the buffer, without
// consuming it.
func (l *lines) peek() ([]byte, error) {
	for size := 1 << 10; ; size *= 2 {
		start, err := l.reader.Peek(min(size, l.reader.Size()))
		if end := bytes.IndexByte(start, '\n'); end >= 0 {
			return start[:end], nil
		}
		switch {
		case len(start) > 0 && (err == io.EOF || size >= l.reader.Size()):
			return start, nil
		case err != nil:
			return nil, err
		}
	}
}

// Next returns the record of the next line that is not empty.
func (l *lines) Next() (Record, error) {
	for {
		line, err := l.readLine()
		if err != nil {
			return Record{}, err
		}
		if len(line) == 0 {
			continue
		}
		if len(line) > maxLine {
			return Record{}, &brokenLine{l.number, string(line[:maxLine]), errors.New("it is longer than 1 MiB")}
		}
		record, err := l.parse(line)
		if err != nil {
			return Record{}, &brokenLine{l.number, string(line), err}
		}
		return record, nil
	}
}

// readLine returns a line without its line break. Of a line above maxLine it returns a
// part that is still above maxLine. The result is valid until the next call.
func (l *lines) readLine() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(l.long) <= maxLine {
				l.long = append(l.long, line...)
			}
			line, err = l.reader.ReadSlice('\n')
		}
		l.long = append(l.long, line...)
		line = l.long
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	l.number++
	return bytes.TrimRight(line, "\r\n"), nil
}
