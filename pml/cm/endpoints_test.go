package cm_test

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// packed makes a network match ranks.
var packed = mtl.RankSetting{Param: "mtl.ofi.layout=packed", CIDBits: 17, SourceBits: 3}

// TestAddComm_TooFewBitsForRanks_IsUnsupported checks that every member gets an error with the number
// of ranks that fit, and with a setting if that helps.
func TestAddComm_TooFewBitsForRanks_IsUnsupported(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  mtltest.Options
		// Ranks of each process.
		counts [2]int
		want   []string
	}{
		{"no bits", mtltest.Options{ByProcess: true, RankSetting: packed}, [2]int{1, 2}, []string{"endpoint 1", "0 bits", "0 to 0", packed.Param}},
		{"one bit", mtltest.Options{ByProcess: true, EndpointBits: 1, RankSetting: packed}, [2]int{3, 1}, []string{"endpoint 2", "1 bits", "0 to 1", packed.Param}},
		{"setting has too few bits for ranks", mtltest.Options{ByProcess: true, EndpointBits: 1, RankSetting: packed}, [2]int{3, 6}, []string{"endpoint 5", "0 to 1", "fewer ranks"}},
		{"no setting", mtltest.Options{ByProcess: true, EndpointBits: 1}, [2]int{2, 3}, []string{"endpoint 2", "0 to 1", "fewer ranks"}},
		{"ids", mtltest.Options{CIDBits: 6}, [2]int{1, 17}, []string{"17 ranks", "6 bits", "room for 16"}},
		{"ranks", mtltest.Options{SourceBits: 2}, [2]int{1, 4}, []string{"5 members", "2 bits", "room for 4"}},
		{"nothing, by process", mtltest.Options{ByProcess: true, EndpointBits: 2, RankSetting: packed}, [2]int{4, 4}, nil},
		{"nothing, by rank", mtltest.Options{SourceBits: 3, CIDBits: 6}, [2]int{4, 4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pmltest.OpenWorld(t, stack(c.opt), 2)
			e := w.Endpoints(c.counts[0], c.counts[1])
			for proc := range c.counts {
				err := e.Join(e.Rank(proc, 0))
				if c.want == nil {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				wantErr(t, "too many ranks", err, framework.ErrUnsupported)
				for _, text := range c.want {
					if err != nil && !strings.Contains(err.Error(), text) {
						t.Errorf("%v: no %q in it", err, text)
					}
				}
				if err != nil && !slices.Contains(c.want, packed.Param) && strings.Contains(err.Error(), packed.Param) {
					t.Errorf("%v: the setting does not help", err)
				}
			}
			if c.want == nil {
				return
			}
			whole := w.Comms(t, cid.PolicyLazy)
			start(t)(isend(whole[0], 1, 1, pml.Standard))
			receive(t, whole[1], 0, 1, "message")
		})
	}
}

// TestAddComm_TooFewFreeIDs_FirstHandleIsUnsupported checks that the first handle is rejected if the
// ids do not suffice for all. Reserved ids may be this communicator's, and count as free.
func TestAddComm_TooFewFreeIDs_FirstHandleIsUnsupported(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{CIDBits: 6}), 2) // 16 ids.
	w.JoinEndpoints(t, 10, 1)
	err := w.Endpoints(7, 1).Join(0)
	wantErr(t, "seven more ranks", err, framework.ErrUnsupported)
	if err != nil && !strings.Contains(err.Error(), "6 of 16") {
		t.Errorf("%v: the number of free ids is missing", err)
	}
	table := w.Procs[0].Module.CIDs()
	var reserved []cid.Local
	for range 5 {
		l, err := table.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		reserved = append(reserved, l)
	}
	e := w.Endpoints(6, 1)
	if err := e.Join(0); err != nil {
		t.Error(err)
	}
	for _, l := range reserved {
		table.Close(l)
	}
	if err := e.Join(e.Rank(0, 1)); err != nil {
		t.Error(err)
	}
}

// TestEndpoints_MTLMatchesByProcess_PassKit runs the kit's cases of endpoints over
// networks that match the process and the endpoint of a source.
func TestEndpoints_MTLMatchesByProcess_PassKit(t *testing.T) {
	for name, opt := range map[string]mtltest.Options{
		"usual":         {},
		"late":          {Faults: mtltest.Faults{Polls: 3}},
		"long in parts": {MaxMessage: 20000},
	} {
		opt.ByProcess, opt.EndpointBits = true, 9
		t.Run(name, func(t *testing.T) { endpointCases(t, stack(opt)).Run(t) })
	}
}

// endpointCases returns the kit's cases of endpoints.
func endpointCases(t *testing.T, s pmltest.Stack) (some kittest.Cases) {
	for _, c := range pmltest.Cases(s, cid.PolicyLazy) {
		if strings.Contains(c.Name, "Endpoint") {
			some = append(some, c)
		}
	}
	if len(some) < 7 {
		t.Fatalf("the kit has %d cases of endpoints", len(some))
	}
	return some
}

// TestControl_ForgedEndpoint_IsDropped checks a reply that names a rank with the endpoint of another
// one. Its id must not be used, because messages sent to it would be lost.
func TestControl_ForgedEndpoint_IsDropped(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	e := w.JoinEndpoints(t, 2, 2)
	to := e.Rank(1, 1)
	for _, ends := range [][2]uint16{{0, 0}, {9, 1}, {0, 9}} { // Receiver and sender.
		b := cm.Reply(w.Group()[0].Nonce, w.Group()[1].Nonce, e.ID, to, cid.MakeLocal(77, 1))
		binary.LittleEndian.PutUint16(b[44:], ends[0])
		binary.LittleEndian.PutUint16(b[46:], ends[1])
		net.Inject(0, b)
	}
	start(t)(e.Comms[0].Isend(text("it arrives"), to, 5, pml.PointToPoint, pml.Standard))
	until(t, "the message", func() bool {
		_, found, err := e.Comms[to].Iprobe(0, 5, pml.PointToPoint)
		return found || err != nil
	})
	receive(t, e.Comms[to], 0, 5, "it arrives")
}

// TestControl_TwoEndpointsAskEarly_BothAreKept checks that requests of two ranks of a process for
// one id are separate early arrivals.
func TestControl_TwoEndpointsAskEarly_BothAreKept(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	e := w.Endpoints(2, 1)
	to := e.Rank(1, 0)
	for endpoint := range 2 {
		from := e.Rank(0, endpoint)
		if err := e.Join(from); err != nil {
			t.Fatal(err)
		}
		start(t)(e.Comms[from].Isend(text("early"), to, 5, pml.PointToPoint, pml.Standard))
	}
	until(t, "two requests", func() bool { return pmltest.Inspect(w.Procs[1].Module).EarlyArrivals == 2 })
	if err := e.Join(to); err != nil {
		t.Fatal(err)
	}
	for endpoint := range 2 {
		receive(t, e.Comms[to], e.Rank(0, endpoint), 5, "early")
	}
}

// TestGoodbye_ProcessOfSeveralRanks_MessagesOfAllAreReceived checks that a goodbye counts the messages of
// all ranks, and that pulls cover each rank.
func TestGoodbye_ProcessOfSeveralRanks_MessagesOfAllAreReceived(t *testing.T) {
	defer cm.SetMaxFruitlessSearches(1 << 20)() // No receive ends because of fruitless searches.
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	e := w.JoinEndpoints(t, 2, 3)
	sent := func(f func(from, to int)) {
		for endpoint := range 3 {
			for other := range 2 {
				f(e.Rank(1, endpoint), e.Rank(0, other))
			}
		}
	}
	sent(func(from, to int) {
		start(t)(e.Comms[from].Isend(text("kept"), to, 5, pml.PointToPoint, pml.Standard))
	})
	wild := make([]started, 2)
	for endpoint := range wild {
		wild[endpoint] = start(t)(recvInto(e.Comms[e.Rank(0, endpoint)], pml.AnySource, 9))
	}
	last := start(t)(recvInto(e.Comms[e.Rank(0, 1)], e.Rank(1, 2), 9))
	for endpoint := range 3 {
		e.Comms[e.Rank(1, endpoint)].Close()
	}
	leave(t, w, 1)
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := last.r.Wait(soon, last.gen)
	wantErr(t, "receive from a rank of a process that has left", err, framework.ErrPeerClosed)
	sent(func(from, to int) { receive(t, e.Comms[to], from, 5, "kept") })
	for _, r := range wild { // The other rank of this process may send with another PML.
		if err := r.r.Cancel(r.gen); err != nil {
			t.Error(err)
		}
		if st, err := r.wait(t); err != nil || !st.Canceled {
			t.Errorf("receive from any: %+v %v", st, err)
		}
	}
}

func TestHandles_ThousandsInAProcess_ShareTables(t *testing.T) { pmltest.Handles(t, stack(eager)) }
