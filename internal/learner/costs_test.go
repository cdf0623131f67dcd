package learner

import "testing"

func TestStart_KnownCosts_SkipsHopelessOptions(t *testing.T) {
	cost := [protocols]float64{pipeline: 0.3, get: 0.1, put: 0.3, split: 0.3, pipelineFull: 0.3, pipelineNT: 0.3}
	play := func(s *Selector[protocol], n int) (by [protocols]int) {
		for range n {
			p, _ := s.Select(allProtocols)
			by[p]++
			s.Record(p, messageBytes, int64(cost[p]*messageBytes), true)
		}
		return by
	}
	first := newSim(1, pipelineFull)
	if _, isWarm := first.Costs(); isWarm {
		t.Error("a selector without messages is warm")
	}
	play(&first, 200)
	costs, isWarm := first.Costs()
	if !isWarm || costs[get] < 0.09 || costs[get] > 0.11 {
		t.Fatalf("costs %v, warm %v", costs, isWarm)
	}
	second := newSim(1, pipelineFull)
	second.Start(costs)
	if by := play(&second, 30); by[get] != 30 {
		t.Errorf("protocols of the first 30 messages: %v", by)
	}
	second.Start(Costs{pipeline: 0.01})
	if by := play(&second, 30); by[get] < 28 {
		t.Errorf("protocols of 30 messages behind a late Start: %v", by)
	}
}

func TestStart_UnknownCosts_HasNoEffect(t *testing.T) {
	s := newSim(1, split)
	s.Start(Costs{})
	s.Start(Costs{get: -1})
	if p, _ := s.Select(allProtocols); p != split {
		t.Errorf("the first protocol is %v", p)
	}
}

// Only a penalized option is possible.
func TestPenalize_NoOtherOption_IsMeasured(t *testing.T) {
	s := newSim(3, pipelineFull)
	s.Penalize(Of(pipeline))
	for range 8 {
		p, _ := s.Select(Of(pipeline))
		s.Record(p, messageBytes, messageBytes/10, true)
	}
	if all := s.Estimates(); len(all) != 1 || all[0].Option != pipeline {
		t.Errorf("estimates behind 8 messages: %v", all)
	}
}
