package mpi

import (
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
)

func TestEarlyEvents_MoreThanTheLimit_OldestGo(t *testing.T) {
	var l earlyEvents
	id := func(i int) cid.Extended { return cid.Extended{Base: 1, Sub: uint64(i)} }
	for i := range maxBrokenEvents + 2 {
		l.add(id(i), bootstrap.Event{Reason: "first"})
		l.add(id(i), bootstrap.Event{Reason: "second"})
	}
	if len(l.eventsByID) != maxBrokenEvents || len(l.idsByAge) != maxBrokenEvents {
		t.Fatalf("%d events, %d in order", len(l.eventsByID), len(l.idsByAge))
	}
	for i, want := range map[int]bool{0: false, 1: false, 2: true, maxBrokenEvents + 1: true} {
		if ev, ok := l.eventsByID[id(i)]; ok != want || ok && ev.Reason != "first" {
			t.Errorf("event %d: %+v, %v", i, ev, ok)
		}
	}
}
