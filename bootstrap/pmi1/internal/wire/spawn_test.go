package wire

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
)

// Requests over the limits end the job at a server, so they are not sent.
func TestSpawn_OverLimits_IsUnsupported(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := New(ours, time.Minute, func(error) {})
	defer c.Close()
	c.limits, c.kvsName = Limits{KVSName: 256, Key: 64, Value: 1024}, "kvs"
	fits := SpawnRequest{N: 1, Program: "/bin/true", Dir: "/", Key: "k", Text: "0"}
	for want, change := range map[string]func(s *SpawnRequest){
		"bytes, and the limit": func(s *SpawnRequest) { s.Args = []string{strings.Repeat("x", maxSpawnBytes)} },
		"lines, and the limit": func(s *SpawnRequest) { s.Args = strings.Fields(strings.Repeat("x ", maxSpawnLines)) },
		"more than 1024 segme": func(s *SpawnRequest) { s.Text = strings.Repeat("0", 2<<20) },
		"control character":    func(s *SpawnRequest) { s.Dir = "/\ncmd=abort exitcode=1" },
	} {
		s := fits
		change(&s)
		if err := c.Spawn(t.Context(), s); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if text, err := c.formatSpawn(fits); err != nil || !strings.HasSuffix(text, "\nendcmd\n") {
		t.Errorf("%q, %v", text, err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the connection has ended: %v", err)
	}
}
