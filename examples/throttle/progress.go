package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// progress writes a line for each download. On a terminal, the lines of downloads under way
// are at the bottom and are redrawn; otherwise a line is written when a download has ended.
type progress struct {
	terminal bool
	mu       sync.Mutex
	out      io.Writer
	active   []*line
	drawn    int // lines at the bottom
}

// line is a download.
type line struct {
	all          *progress
	client, path string
	total        int64 // bytes, -1 if unknown
	passed       int64 // all.mu guards it
	start        time.Time
}

func newProgress(out io.Writer, terminal bool) *progress {
	return &progress{out: out, terminal: terminal}
}

func (p *progress) start(client string, asked *url.URL, total int64) *line {
	l := &line{all: p, client: client, path: asked.EscapedPath(), total: total, start: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = append(p.active, l)
	return l
}

// Write counts what passes.
func (l *line) Write(b []byte) (int, error) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.passed += int64(len(b))
	return len(b), nil
}

// finish writes the final line of a download. Later calls do nothing.
func (p *progress) finish(l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.active, l)
	if i < 0 {
		return
	}
	p.active = slices.Delete(p.active, i, i+1)
	p.drawLocked(l.textLocked() + "\n")
}

func (p *progress) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawLocked(fmt.Sprintf(format, args...))
}

// drawUntil draws the downloads under way five times a second until ctx ends.
func (p *progress) drawUntil(ctx context.Context) {
	ticks := time.NewTicker(200 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			p.mu.Lock()
			p.drawLocked("")
			p.mu.Unlock()
		}
	}
}

// drawLocked writes text, which stays, and below it the lines of downloads under way.
func (p *progress) drawLocked(text string) {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", p.drawn) // up, and erase the lines below
	}
	b.WriteString(text)
	p.drawn = 0
	if p.terminal {
		for _, l := range p.active {
			b.WriteString(l.textLocked() + "\n")
		}
		p.drawn = len(p.active)
	}
	if b.Len() == 0 {
		return
	}
	_, _ = io.WriteString(p.out, b.String()) // the proxy also works if its progress cannot be written
}

// textLocked returns a line of less than 80 characters: a line that the terminal wraps could
// not be overwritten.
func (l *line) textLocked() string {
	passed := size(float64(l.passed))
	if l.total > 0 {
		passed += fmt.Sprintf(" of %s %3d %%", size(float64(l.total)), 100*l.passed/l.total)
	}
	rate := ""
	if seconds := time.Since(l.start).Seconds(); seconds > 0 {
		rate = size(float64(l.passed)/seconds) + "/s"
	}
	return fmt.Sprintf("%-15.15s %-24.24s %-24s %s", l.client, l.path, passed, rate)
}

// size returns a number of bytes as people write it.
func size(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if bytes < 999.5 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g TB", bytes)
}
