package mpi_test

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// The launcher ends while a session opens, or rejects its token. The close of the partly opened session must not panic.
func TestOpenSession_LauncherHangsUp_ReturnsError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	defer func() {
		l.Close()
		<-hungUp
	}()
	for name, value := range map[string]string{"ADDRESS": "unix:" + path, "TOKEN": "x", "NAMESPACE": "job", "RANK": "0", "SIZE": "2"} {
		t.Setenv("FERRY_BOOTSTRAP_LOCAL_"+name, value)
	}
	s, err := mpi.OpenSession(t.Context())
	if err == nil {
		t.Fatal("a session without a launcher is open")
	}
	if s != nil || !errors.Is(err, mpi.ErrTransport) {
		t.Errorf("session %v, error %v", s, err)
	}
}
