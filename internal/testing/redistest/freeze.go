//go:build unix

package redistest

import (
	"syscall"

	"github.com/stretchr/testify/require"
)

// Freeze stops the process. Its connections stay open and clients can still connect, but
// the server answers nothing until Thaw.
func (s *Server) Freeze() { require.NoError(s.t, s.process.Process.Signal(syscall.SIGSTOP)) }

// Thaw lets a frozen process continue.
func (s *Server) Thaw() { require.NoError(s.t, s.process.Process.Signal(syscall.SIGCONT)) }
