package pmi1

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

// members opens clients with an exchange.
func members(t *testing.T, s *pmi1test.Server, exchange string, timeout time.Duration, ranks ...int) []bootstrap.Client {
	t.Helper()
	var cs []bootstrap.Client
	for _, r := range ranks {
		e := env(s, r, timeout)
		e.Params.(*Params).Exchange = exchange
		c, err := Component().Open(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Close()
			if p, ok := framework.As[interface{ Crash() error }](c); ok {
				p.Crash()
			}
		})
		cs = append(cs, c)
	}
	return cs
}

// construct makes one construct of all clients.
func construct(t *testing.T, group []framework.Proc, cs ...bootstrap.Client) []error {
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() { _, errs[i] = c.Construct(t.Context(), group, "t", []byte(c.Identity().Proc.String())) })
	}
	wg.Wait()
	return errs
}

func TestExchangeGroups_ServerWithoutGroups_IsErrUnsupported(t *testing.T) {
	for style, want := range map[pmi1test.Style]error{pmi1test.Hydra402: framework.ErrUnsupported, pmi1test.Slurm: framework.ErrUnsupported} {
		s := server(t, pmi1test.Options{Style: style})
		e := env(s, 0, time.Minute)
		e.Params.(*Params).Exchange = "groups"
		if _, err := Component().Open(t.Context(), e); !errors.Is(err, want) || !strings.Contains(err.Error(), "PMI 1.1") {
			t.Error(err)
		}
		for _, line := range s.Requests() { // The server would take it for a barrier of all.
			if strings.Contains(line, "barrier") {
				t.Error(line)
			}
		}
	}
	e := env(server(t, pmi1test.Options{}), 0, time.Minute)
	e.Params.(*Params).Exchange = "some"
	if _, err := Component().Open(t.Context(), e); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "bootstrap.pmi1.exchange=some") {
		t.Error(err)
	}
}

// Members recognize a group by its order. A group of one process sends nothing, because a list of
// one rank kills the server.
func TestGroupName_KeepsOrder(t *testing.T) {
	s := server(t, pmi1test.Options{Style: pmi1test.HydraNew})
	cs := members(t, s, "groups", time.Minute, 0, 1, 2, 3)
	for want, ranks := range map[string][]uint32{"group=3,1": {3, 1}, "group=1,3": {1, 3}, "group=WORLD": {0, 1, 2, 3}, "group=2": {2}} {
		var group []framework.Proc
		var some []bootstrap.Client
		for _, r := range ranks {
			group, some = append(group, proc(r)), append(some, cs[r])
		}
		if err := errors.Join(construct(t, group, some...)...); err != nil {
			t.Error(want, err)
		}
		said := 0
		for _, line := range s.Requests() {
			if strings.HasSuffix(line, " "+want) {
				said++
			}
		}
		if len(ranks) > 1 && said != len(ranks) || len(ranks) == 1 && said > 0 {
			t.Errorf("%q was sent %d times", want, said)
		}
	}
	if why := s.Violations(); len(why) > 0 {
		t.Error(why)
	}
}

// The error is the same in all members, and the connection stays usable.
func TestBarrier_GroupIsTooLong_IsErrUnsupported(t *testing.T) {
	const size = 300
	s := server(t, pmi1test.Options{Size: size, Style: pmi1test.HydraNew})
	c := members(t, s, "groups", time.Minute, 0)[0]
	var group []framework.Proc
	for r := range uint32(size - 1) {
		group = append(group, proc(r))
	}
	if err := construct(t, group, c)[0]; !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "exchange to meet") {
		t.Error(err)
	}
	if _, ok, err := rank(t, s, 0).Find(t.Context(), proc(7)); ok || err != nil {
		t.Errorf("find after that: %t, %v", ok, err)
	}
}

// PMI-1 cannot withdraw from a barrier. The missing members are unknown, and later calls fail at
// once.
func TestBarrier_MemberIsAbsent_EndsConnection(t *testing.T) {
	for exchange, style := range map[string]pmi1test.Style{"groups": pmi1test.HydraNew, "all": pmi1test.Hydra402} {
		t.Run(exchange, func(t *testing.T) { neverComes(t, exchange, style) })
	}
}

func neverComes(t *testing.T, exchange string, style pmi1test.Style) {
	s := server(t, pmi1test.Options{Size: 2, Style: style})
	c := members(t, s, exchange, 200*time.Millisecond, 0)[0]
	world := []framework.Proc{proc(0), proc(1)}
	begin := time.Now()
	err := construct(t, world, c)[0]
	if !errors.Is(err, framework.ErrTimeout) || !strings.Contains(err.Error(), "the missing members are unknown") {
		t.Error(err)
	}
	for range 2 {
		if err := construct(t, world, c)[0]; !errors.Is(err, framework.ErrTransport) {
			t.Error(err)
		}
	}
	if _, err := c.Construct(t.Context(), world[:1], "t", nil); err != nil {
		t.Errorf("alone: %v", err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("that took %v", took)
	}
}

func TestBarrier_ServerIsLost_Ends(t *testing.T) {
	s := server(t, pmi1test.Options{Size: 2, Style: pmi1test.Hydra402})
	c := members(t, s, "all", time.Minute, 0)[0]
	s.InjectFault(pmi1test.Fault{Cmd: "barrier_in", MustClose: true})
	if err := construct(t, []framework.Proc{proc(0), proc(1)}, c)[0]; !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "barrier_in") {
		t.Error(err)
	}
}

// The error quotes it without its value.
func TestFetch_InvalidContribution_IsAnError(t *testing.T) {
	for _, value := range []string{"value=%%%", "value=AAAA"} {
		t.Run(value, func(t *testing.T) { noPart(t, value) })
	}
}

func noPart(t *testing.T, value string) {
	s := server(t, pmi1test.Options{Size: 2, Style: pmi1test.Hydra402})
	cs := members(t, s, "all", time.Minute, 0, 1)
	s.InjectFault(pmi1test.Fault{Cmd: "get", Response: fmt.Sprintf("cmd=get_result rc=0 msg=success %s\n", value)})
	errs := construct(t, []framework.Proc{proc(0), proc(1)}, cs...)
	if bad := errors.Join(errs...); !errors.Is(bad, framework.ErrTransport) || errs[0] != nil && errs[1] != nil {
		t.Error(errs)
	}
}

var _ mesh.Exchange = exchangeLauncher{}
