package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/aa014e13/tokenbucket"
	"github.com/aa014e13/tokenbucket/keyed"
)

// stateFormat is the first field of a state file, to recognise it among other JSON.
const stateFormat = "tokenbucket gateway, version 1"

// saved is the content of a state file. It holds addresses of clients, so only its owner
// may read it.
type saved struct {
	Format  string
	Begun   time.Time // when saving began: the file has all that was admitted before
	Limits  []tokenbucket.Limit
	Origin  time.Time
	Latest  time.Duration
	Buckets map[string][]tokenbucket.State
}

// stateFile saves buckets in a file and restores them.
type stateFile struct {
	name    string
	clients *keyed.Buckets[string]
}

// load restores the buckets that the last process saved. It does not change a file that it
// cannot read.
func (f stateFile) load() error {
	text, err := os.ReadFile(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the first start
	}
	if err != nil {
		return err
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s is damaged or not a state file: %w: move it away, or name another with -state", f.name, err)
	}
	if s.Format != stateFormat {
		return fmt.Errorf("%s is not a state file of this gateway: its Format is %q: name another with -state", f.name, s.Format)
	}
	if err := f.clients.Restore(s.Limits, s.Origin, s.Latest, maps.All(s.Buckets)); err != nil {
		return fmt.Errorf("%s is damaged: %w: move it away, or name another with -state", f.name, err)
	}
	return nil
}

// save replaces the file in one step, so that a crash leaves the old one or the new one.
func (f stateFile) save() (err error) {
	s := saved{Format: stateFormat, Begun: time.Now(), Limits: f.clients.Limits(), Buckets: maps.Collect(f.clients.All())}
	s.Origin, s.Latest = f.clients.Origin(), f.clients.Latest()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// The name is always the same, so that processes killed while saving leave one file,
	// not many.
	name := f.name + ".tmp"
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(name)
		}
	}()
	_, err = temporary.Write(text)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	if err := os.Rename(name, f.name); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(f.name))
}

// syncFolder writes a rename to the disk. Windows cannot do that for a folder.
func syncFolder(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// saveEvery saves at an interval until the context ends, and reports errors.
func (f stateFile) saveEvery(ctx context.Context, interval time.Duration, report func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := f.save(); err != nil {
				report(err)
			}
		}
	}
}
