//go:build unix

package redistest

import (
	"syscall"

	"github.com/stretchr/testify/require"
)

// Freeze stops the process: it keeps its connections and accepts further ones, but
// answers nothing until Thaw.
func (s *Server) Freeze() { require.NoError(s.t, s.process.Process.Signal(syscall.SIGSTOP)) }

// Thaw lets a frozen process go on.
func (s *Server) Thaw() { require.NoError(s.t, s.process.Process.Signal(syscall.SIGCONT)) }
