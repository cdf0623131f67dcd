package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
)

func TestSnapshot_ProcessesInEachState_AreListed(t *testing.T) {
	var mu sync.Mutex
	var events []string
	record := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, text)
	}
	s, err := New(Options{
		Size: 4, Psets: []Pset{{"half", []uint32{0, 1}}},
		OnPset: func(ev PsetEvent) { record(fmt.Sprint(ev.Kind, " ", ev.Op, " ", ev.Results)) },
		OnProc: func(ev ProcEvent) { record(fmt.Sprint(ev.Rank, " ", ev.State, " ", ev.Reason)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	first, second := connect(t, s, 0), connect(t, s, 1)
	defer first.Close()
	first.(bootstrap.EventSource).BeginIncarnation(7)
	second.(bootstrap.EventSource).BeginIncarnation(8)
	operate(t, first, bootstrap.PsetUnion, bootstrap.PsetArgs{Name: "all"}, bootstrap.PsetWorld)
	operate(t, second, bootstrap.PsetUnion, bootstrap.PsetArgs{Name: "more"}, bootstrap.PsetWorld)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	s.ProcExited(2, "")
	s.ProcExited(3, "signal: killed")
	var got Snapshot
	for got = s.Snapshot(2); got.Procs[1].State != ProcClosed; got = s.Snapshot(2) { // The server reads the goodbye later.
		if state := got.Procs[1].State; state != ProcOpen {
			t.Fatalf("rank 1 is %v", state)
		}
	}
	var states []string
	for _, p := range got.Procs {
		states = append(states, fmt.Sprint(p.Rank, " ", p.State, " node ", p.Node))
	}
	if want := []string{"0 open node 0", "1 closed node 0", "2 ended node 0", "3 failed node 0"}; !slices.Equal(states, want) {
		t.Errorf("processes %q, want %q", states, want)
	}
	if sets := fmt.Sprint(got.Psets, got.OlderPsets); sets != "[{mpi://WORLD [0 1 2 3]} {all [0 1 2 3]} {more [0 1 2 3]}] 1" {
		t.Errorf("sets %s", sets)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(events)
	if want := []string{"0 open ", "1 open ", "2 ended ", "3 failed signal: killed", "made union [all]", "made union [more]"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

func TestSnapshot_DividedJob_HasNodes(t *testing.T) {
	s, err := New(Options{Size: 2, Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := fmt.Sprint(s.Snapshot(1).Procs); got != "[{0 starting 0 0} {1 starting 0 1}]" {
		t.Errorf("processes %s", got)
	}
}
