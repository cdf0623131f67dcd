package learner

import (
	"fmt"
	"testing"
)

// batchMachine simulates processes that pack and unpack messages in turn. The last message of
// a batch carries the cost of the whole batch.
type batchMachine struct {
	*machine
	batch, n   int
	unreported float64
}

func (b *batchMachine) messageTime(w protocol, bytes int64) int64 {
	b.unreported += float64(b.machine.messageTime(w, bytes))
	if b.n++; b.n%b.batch > 0 {
		return 10
	}
	t := int64(b.unreported)
	b.unreported = 0
	return t
}

// Messages of a duplex window complete in batches, and some were accepted before the protocol
// changed.
func TestGroupSelector_BatchedTimes_FindsBest(t *testing.T) {
	for _, x := range []struct{ group, batch, ahead int }{{32, 1, 32}, {32, 4, 32}, {32, 7, 0}, {32, 16, 32}, {16, 1, 16}, {16, 4, 16}, {16, 7, 16}, {8, 1, 8}, {8, 3, 8}} {
		var losses []float64
		for seed := range uint64(machines() / 20) {
			m := &batchMachine{machine: newMachine(seed), batch: x.batch}
			m.spikeChance = 0
			m.possible = anyPipeline | Of(get)
			for w := range m.drift {
				m.drift[w] = 0
			}
			g := NewGroup(int(protocols), x.group, pipeline)
			var under []protocol
			var elapsed, least float64
			for i := range 6400 {
				w, _ := g.Select(m.possible)
				if i >= 3200 {
					elapsed += m.cost[w]
					least += m.leastCost()
				}
				if under = append(under, w); len(under) > x.ahead {
					g.Record(under[0], messageBytes, m.messageTime(under[0], messageBytes), false)
					under = under[1:]
				}
			}
			losses = append(losses, elapsed/least-1)
		}
		if mean := logSummary(t, fmt.Sprintf("%+v: messages 3201 to 6400", x), losses); mean > 0.03 {
			t.Errorf("loss of %.1f %%", 100*mean)
		}
	}
}

func TestGroupSelector_ProtocolBecomesImpossible_StartsNewGroup(t *testing.T) {
	g := NewGroup(int(protocols), 16, pipeline)
	for i := range 1000 {
		possible := Of(pipeline, get)
		if i%7 > 3 {
			possible = Of(pipelineFull)
		}
		w, _ := g.Select(possible)
		if !possible.Has(w) {
			t.Fatalf("message %d goes by %v", i, w)
		}
		g.Record(w, messageBytes, messageBytes/10, true)
	}
}

// All messages of a group had arrived before the receiver polled, and elapsed no time.
func TestGroupSelector_GroupsOfNoTime_AreIgnored(t *testing.T) {
	g := NewGroup(int(protocols), 8, pipeline)
	by := map[protocol]int{}
	for i := range 4000 {
		w, _ := g.Select(Of(pipeline, pipelineFull))
		ns := int64(messageBytes / 20)
		if w == pipeline {
			if ns = messageBytes / 10; i%80 < 12 {
				ns = 0
			}
		}
		g.Record(w, messageBytes, ns, true)
		by[w]++
	}
	if by[pipelineFull] < 3000 {
		t.Errorf("protocols of 4000 messages: %v", by)
	}
}
