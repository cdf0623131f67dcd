package assembly

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// seen counts events.
type seen int

func (s *seen) Event(pml.Event) { *s++ }

func TestTiming_Nil_HasNoEffect(t *testing.T) {
	var none *timing
	none.mark(stepOpen)
	none.addPart(stepModules, "x", time.Second)
	none.opened(framework.BTL, "x", time.Now())
	none.probes(map[framework.Kind]*framework.Selection{framework.BTL: {Verdicts: []framework.Verdict{{ProbeTime: 1}}}})
	if none.watch(nil) != nil {
		t.Error("hooks where the program has none")
	}
	program := new(seen)
	if none.watch(program) != pml.Hooks(program) {
		t.Error("other hooks than the program's")
	}
}

func TestTiming_RepeatedStep_KeepsFirst(t *testing.T) {
	program := new(seen)
	x := newTiming(now(stepOpen))
	h := x.watch(program)
	for _, kind := range []pml.EventKind{pml.EventRecv, pml.EventTransportUp, pml.EventSend, pml.EventTransportUp, pml.EventMatch} {
		h.Event(pml.Event{Kind: kind})
	}
	x.mark(stepComm)
	x.mark(stepComm)
	if *program != 5 {
		t.Errorf("the program's hooks have seen %d of 5 events", *program)
	}
	got := x.snapshot().Marks
	want := []string{stepOpen, stepPath, stepMessage, stepComm}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, m := range got {
		if m.Step != want[i] || m.CompletedAt <= 0 || m.ProcessorTime <= 0 || i > 0 && m.CompletedAt < got[i-1].CompletedAt {
			t.Errorf("%+v", got)
		}
	}
}
