package server

import (
	"testing"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

func TestNote_ProcessHasEndedOrDoesNotRead_IsDropped(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(from, to *proc)
		frames  int
	}{
		"both live":              {func(_, _ *proc) {}, 1},
		"sender has ended":       {func(from, _ *proc) { from.hasEnded = true }, 0},
		"receiver has ended":     {func(_, to *proc) { to.hasEnded = true }, 0},
		"receiver does not read": {func(_, to *proc) { to.conn.bytesUnwritten = maxUnwritten / 2 }, 0},
	} {
		s, err := New(Options{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		queue := &conn{server: s, isWriting: true} // Keeps its frames.
		s.procs[0].conn = queue
		c.prepare(s.procs[1], s.procs[0])
		s.sendNote(s.procs[1], wire.NoteBody{Rank: 0, To: 5})
		s.sendNote(s.procs[1], wire.NoteBody{Rank: 2, To: 5}) // No such rank.
		if len(queue.queue) != c.frames {
			t.Errorf("%s: %d frames, want %d", name, len(queue.queue), c.frames)
		}
		if want := uint64(2 - c.frames); s.eventLog.droppedNotes != want {
			t.Errorf("%s: %d notes dropped, want %d", name, s.eventLog.droppedNotes, want)
		}
		s.procs[0].conn = nil
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
