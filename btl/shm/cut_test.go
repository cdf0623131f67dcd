package shm

import (
	"errors"
	"os"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// TestCutInboxEndsNobodyWhoGivesItUp: its owner dies of that, and who then ends the path
// to him, asks about it or closes must not die too.
func TestCutInboxEndsNobodyWhoGivesItUp(t *testing.T) {
	for what, use := range map[string]func(m *module) error{
		"give up":     func(m *module) error { m.Forget(childLife); return nil },
		"explain":     func(m *module) error { m.Notes(childLife); return nil },
		"close":       func(*module) error { return nil }, // as all others do at the end
		"read memory": func(m *module) error { return m.CanRead(childLife, description{address: 1 << 12}.encode(), 0) },
		"connect": func(m *module) error {
			_, err := m.Connect(framework.Peer{Life: childLife, Proc: framework.Proc{Namespace: t.Name()}, Blob: []byte(m.out[childLife].far.name)})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := startChild(t, "cma", t.TempDir(), nil).reader
			e := m.out[childLife]
			for e.producer == nil && e.far != nil {
				m.Poll()
			}
			if err := os.Truncate(e.far.segment.Path(), 0); err != nil {
				t.Fatal(err)
			}
			if err := use(m); (err != nil) != (what == "connect" || what == "read memory") {
				t.Error(err)
			}
		})
	}
}

func TestCutInboxIsAnErrorForWhoWaitsForItsAnswer(t *testing.T) {
	m := startChild(t, "off", t.TempDir(), nil).reader
	if err := os.Truncate(m.out[childLife].far.segment.Path(), 0); err != nil {
		t.Fatal(err)
	}
	m.Poll()
	if lost := m.env.Upcall.(*testProc).lost; len(lost) != 1 || !errors.Is(lost[0], btl.ErrNeverOpened) || !errors.Is(lost[0], errCut) {
		t.Errorf("lost: %v", lost)
	}
}
