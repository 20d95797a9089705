package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// buildGateway compiles the gateway, whose source is in the parent folder, into a folder.
func buildGateway(ctx context.Context, folder string) (binary string, err error) {
	binary = filepath.Join(folder, "gateway")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("run this in examples/gateway/browsertest: %w\n%s", err, out)
	}
	return binary, nil
}

// startGateway starts the gateway on a free loopback port. It returns the address of its
// page, and a function that interrupts the gateway and returns the error with which it
// ended.
func startGateway(ctx context.Context, binary string, flags ...string) (url string, stop func() error, err error) {
	gateway := exec.CommandContext(ctx, binary, append([]string{"-addr", "127.0.0.1:0"}, flags...)...)
	gateway.Stderr = os.Stderr
	printed, err := gateway.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := gateway.Start(); err != nil {
		return "", nil, err
	}
	lines := bufio.NewScanner(printed)
	for url == "" && lines.Scan() {
		url = regexp.MustCompile(`http://\S+/`).FindString(lines.Text())
	}
	if url == "" {
		return "", nil, errors.Join(errors.New("the gateway printed no address: run it by hand with the same flags"), gateway.Wait())
	}
	stop = func() error {
		if err := gateway.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		for lines.Scan() { // discard the rest of its output
		}
		return gateway.Wait()
	}
	return url, stop, nil
}
