package main

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/aa014e13/tokenbucket/fit/internal/accesslog"
)

// inputs are the open files, read as one log, with a progress bar on a terminal.
type inputs struct {
	log   *accesslog.Log
	files []*os.File
	bar   *progressbar.ProgressBar // nil: none
}

func open(c *config, in io.Reader, progress io.Writer) (*inputs, error) {
	i := &inputs{}
	var readers []io.Reader
	size := int64(0)
	for _, name := range c.files {
		if name == "-" {
			readers, size = append(readers, in), -1
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			i.close()
			return nil, err
		}
		i.files = append(i.files, file)
		readers = append(readers, file)
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			size = -1
		} else if size >= 0 {
			size += info.Size()
		}
	}
	if isTerminal(progress) {
		i.bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(progress),
			progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
		for n, r := range readers {
			readers[n] = io.TeeReader(r, i.bar)
		}
	}
	var err error
	if i.log, err = accesslog.Open(c.files, readers, c.log, c.window); err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// finish takes the progress bar away.
func (i *inputs) finish() {
	if i.bar != nil {
		i.bar.Finish()
	}
}

func (i *inputs) close() {
	for _, file := range i.files {
		file.Close()
	}
}
