package host

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// protocol refuses some of the frames, and forgets peers while it is called.
type protocol struct{ m *module }

func (p protocol) Accept(framework.Incarnation) btl.Inbound     { return p }
func (p protocol) Limits(framework.Incarnation, int, int)       {}
func (p protocol) PathDown(peer framework.Incarnation, _ error) { p.m.Forget(peer) }
func (p protocol) PeerChanged(ev framework.PeerEvent)           { p.m.Forget(ev.Peer) }
func (protocol) LinkChanged(framework.Incarnation, string)      {}
func (protocol) Card(framework.Incarnation) (framework.Peer, bool) {
	return framework.Peer{}, false
}
func (protocol) Place([]byte, int) []byte { return nil }
func (protocol) Placed([]byte, int) error { return nil }
func (p protocol) Frame(b []byte) error {
	if b[0] == 0xff {
		return errors.New("invalid")
	}
	return nil
}

const fuzzCells = 64

// bare returns a module without a plugin. The test has its part.
func bare(tb testing.TB) *module {
	job := kittest.NewJob(2, 1)
	env := btl.Env{Env: job.Begin(0, progress.Options{})}
	env.Logger = slog.New(slog.DiscardHandler)
	m := &module{env: env, params: &params{OpenTimeout: time.Hour}, name: "btl fuzz", firstOffer: wire.Offer{Frame: 256, Eager: 256, Reaches: 3}, wakeFD: -1}
	m.env.Upcall = protocol{m}
	m.enableRestarts()
	tb.Cleanup(env.Engine.Close)
	return m
}

// meet gives the module new memory, and leaves has it freed. The engine's lock is held in
// between.
func (m *module) meet(tb testing.TB, published uint64) {
	mem, err := unix.Mmap(-1, 0, wire.Size(fuzzCells), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		tb.Fatal(err)
	}
	wire.Layout(mem, fuzzCells)
	p := &process{sharedMemory: mem, ringCells: fuzzCells, ringPoller: func() {}, quit: make(chan struct{}), output: &output{logger: m.env.Logger}, offer: m.firstOffer}
	p.publishedCount.Store(published)
	m.env.Engine.Lock()
	m.restartPolicy = restartPolicy{}
	m.attach(p)
}

func (m *module) leaves() {
	if m.endReason == nil {
		m.endAllPaths(errors.New("the end"))
	}
	m.env.Engine.Unlock()
	m.restarter.work.Wait()
}

// FuzzMessages puts arbitrary messages of a plugin into its ring. Each causes an error or a state change, and the rank continues.
func FuzzMessages(f *testing.F) {
	m := bare(f)
	self := m.env.Identity.Proc
	caller := wire.Caller{World: framework.NamespaceHash(self.Namespace), Nonce: 9, Rank: 1}.Bytes()
	f.Add(byte(wire.Opened), byte(2), []byte{}, byte(wire.Credits), byte(2), binary.LittleEndian.AppendUint32(nil, 4))
	f.Add(byte(wire.Accept), byte(1), caller, byte(wire.Frame), byte(1), []byte{0xff})
	f.Add(byte(wire.Ended), byte(2), []byte{1, 0, 0, 0}, byte(wire.Opened), byte(2), []byte{})
	f.Add(byte(wire.Idle), byte(2), make([]byte, 8), byte(wire.Accept), byte(3), caller)
	peer := framework.Peer{Incarnation: framework.Incarnation{ID: framework.MakeProcID(0, 1), Nonce: 9}, Proc: framework.Proc{Namespace: self.Namespace, Rank: 1}, Blob: []byte("b")}
	f.Fuzz(func(t *testing.T, kind1, path1 byte, body1 []byte, kind2, path2 byte, body2 []byte) {
		m.meet(t, 0)
		defer m.leaves()
		ep, err := m.Connect(peer)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			kind, path byte
			body       []byte
		}{{kind1, path1, body1}, {kind2, path2, body2}} {
			b := make([]byte, wire.Prefix)
			wire.Put(b, uint32(x.kind), uint32(x.path))
			if m.handleMessage(append(b, x.body...)) != nil {
				break
			}
			if ep.Reserve(100, btl.RingStart) != nil {
				ep.Commit(100)
			}
		}
		if e := ep.(*outbound); e.credit < 0 || e.credit > wire.Credit || e.sentFrames > 2 {
			t.Errorf("%+v", e)
		}
		m.endPathsTo(peer.Incarnation, "send", errors.New("the path ends"))
		if len(m.pathTable.outbounds) > 0 || len(m.pathTable.inbounds) > 2 {
			t.Errorf("%d paths to peers, and %d from them are left", len(m.pathTable.outbounds), len(m.pathTable.inbounds))
		}
	})
}

// FuzzRing writes arbitrary data into the shared memory. The rank ends the plugin or continues.
func FuzzRing(f *testing.F) {
	f.Add(uint16(0), []byte{1, 0, 0, 0, 8, 0, 0, 0, wire.Opened, 0, 0, 0, 2, 0, 0, 0}, uint64(1))
	f.Add(uint16(0), []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f}, uint64(0))
	f.Add(uint16(32), []byte{0xff, 0xff, 0xff, 0xff}, uint64(1<<63))
	m := bare(f)
	f.Fuzz(func(t *testing.T, at uint16, bytes []byte, published uint64) {
		m.meet(t, published)
		defer m.leaves()
		mem := m.process.sharedMemory
		toRank := mem[wire.Cells+fuzzCells*64:]
		copy(toRank[int(at)%len(toRank):], bytes)
		copy(mem[wire.ToPlugin+int(at)%1024:wire.Cells], bytes[len(bytes)/2:]) // the headers
		for range 3 {
			m.Poll()
			m.sendMessage(wire.Leave, 2, nil)
		}
	})
}
