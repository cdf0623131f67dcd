package selector

import "testing"

func TestStart_KnownCosts_SkipsHopelessProtocols(t *testing.T) {
	cost := [Protocols]float64{Pipeline: 0.3, Get: 0.1, Put: 0.3, Split: 0.3, PipelineFull: 0.3, PipelineNT: 0.3}
	play := func(s *Selector, n int) (by [Protocols]int) {
		for range n {
			p, _ := s.Select(All)
			by[p]++
			s.Record(p, messageBytes, int64(cost[p]*messageBytes), true)
		}
		return by
	}
	first := New(1, 1, PipelineFull)
	if _, isWarm := first.Costs(); isWarm {
		t.Error("a selector without messages is warm")
	}
	play(&first, 200)
	costs, isWarm := first.Costs()
	if !isWarm || costs[Get] < 0.09 || costs[Get] > 0.11 {
		t.Fatalf("costs %v, warm %v", costs, isWarm)
	}
	second := New(2, 1, PipelineFull)
	second.Start(costs)
	if by := play(&second, 30); by[Get] != 30 {
		t.Errorf("protocols of the first 30 messages: %v", by)
	}
	second.Start(Costs{Pipeline: 0.01})
	if by := play(&second, 30); by[Get] < 28 {
		t.Errorf("protocols of 30 messages behind a late Start: %v", by)
	}
}

func TestStart_UnknownCosts_HasNoEffect(t *testing.T) {
	s := New(1, 1, Split)
	s.Start(Costs{})
	s.Start(Costs{Get: -1})
	if p, _ := s.Select(All); p != Split {
		t.Errorf("the first protocol is %v", p)
	}
}
