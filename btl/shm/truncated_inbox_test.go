package shm

import (
	"errors"
	"os"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Truncation kills the owner. A peer that then ends its path, queries it or closes must survive.
func TestInbox_TruncatedByOwner_CleanupSurvives(t *testing.T) {
	for what, use := range map[string]func(m *module) error{
		"give up":     func(m *module) error { m.Forget(childIncarnation); return nil },
		"explain":     func(m *module) error { m.Notes(childIncarnation); return nil },
		"close":       func(*module) error { return nil }, // The test calls Close for all cases at the end.
		"read memory": func(m *module) error { return m.CanRead(childIncarnation, description{address: 1 << 12}.encode(), 0) },
		"connect": func(m *module) error {
			_, err := m.Connect(framework.Peer{Incarnation: childIncarnation, Proc: framework.Proc{Namespace: t.Name()}, Blob: []byte(m.endpoints[childIncarnation].remote.name)})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := startChild(t, "cma", t.TempDir(), nil).reader
			e := m.endpoints[childIncarnation]
			for e.producer == nil && e.remote != nil {
				m.Poll()
			}
			if err := os.Truncate(e.remote.segment.Path(), 0); err != nil {
				t.Fatal(err)
			}
			if err := use(m); (err != nil) != (what == "connect" || what == "read memory") {
				t.Error(err)
			}
		})
	}
}

func TestConnect_InboxTruncated_ReportsPathDown(t *testing.T) {
	m := startChild(t, "off", t.TempDir(), nil).reader
	if err := os.Truncate(m.endpoints[childIncarnation].remote.segment.Path(), 0); err != nil {
		t.Fatal(err)
	}
	m.Poll()
	if lost := m.env.Upcall.(*testProc).pathDownErrors; len(lost) != 1 || !errors.Is(lost[0], btl.ErrNeverOpened) || !errors.Is(lost[0], errTruncated) {
		t.Errorf("lost: %v", lost)
	}
}
