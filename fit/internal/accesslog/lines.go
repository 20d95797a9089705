package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lines is a log of one record a line.
type lines struct {
	reader *bufio.Reader
	parse  func(line []byte) (Record, error)
	number int
	long   []byte // reused for lines longer than the reader's buffer
}

func newLines(r io.Reader) *lines {
	return &lines{reader: bufio.NewReaderSize(r, 1<<16)}
}

// peek returns the first line, or what of it fits the buffer, without reading it.
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
		record, err := l.parse(line)
		if err != nil {
			return Record{}, &brokenLine{l.number, string(line), err}
		}
		return record, nil
	}
}

// readLine returns a line without its end. It is valid until the next call.
func (l *lines) readLine() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			l.long = append(l.long, line...)
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
