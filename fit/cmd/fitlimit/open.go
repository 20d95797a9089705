package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
	var known []os.FileInfo
	size := int64(0)
	for n, name := range c.files {
		if name == "-" {
			if slices.Contains(c.files[:n], name) {
				i.close()
				return nil, errors.New("standard input was given before: name each log once")
			}
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
		info, err := file.Stat()
		switch {
		case err != nil || !info.Mode().IsRegular():
			size = -1
		case slices.ContainsFunc(known, func(other os.FileInfo) bool { return os.SameFile(info, other) }):
			i.close()
			return nil, fmt.Errorf("%s was given before: name each log once", name)
		case size >= 0:
			size += info.Size()
		}
		if err == nil {
			known = append(known, info)
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

// finish removes the progress bar.
func (i *inputs) finish() {
	if i.bar != nil {
		_ = i.bar.Finish() // an error does not matter: the bar is no longer needed
	}
}

func (i *inputs) close() {
	for _, file := range i.files {
		file.Close()
	}
}
