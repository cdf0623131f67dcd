package tcp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// job is a job in one test, whose modules the test polls and inspects.
type job struct {
	t            testing.TB
	namespace    string
	procs        []*process
	incarnations uint64
}

// process is a process of a job. It is the protocol above its module, and records all upcalls.
type process struct {
	*module
	j           *job
	rank        int
	incarnation framework.Incarnation
	log         bytes.Buffer
	got         [][]byte
	lost        []error
	// The result of Frame.
	refuse error
	place  func(header []byte, size int) []byte
	placed int
	links  []string
	// It records the calls of Limits.
	limits [][2]int
	alone  bool // It has no cards.
}

func (p *process) Accept(framework.Incarnation) btl.Inbound    { return p }
func (p *process) PathDown(_ framework.Incarnation, err error) { p.lost = append(p.lost, err) }
func (p *process) PeerChanged(ev framework.PeerEvent)          { p.lost = append(p.lost, ev.Err) }
func (p *process) Limits(_ framework.Incarnation, eager, frame int) {
	p.limits = append(p.limits, [2]int{eager, frame})
}
func (p *process) LinkChanged(_ framework.Incarnation, note string) { p.links = append(p.links, note) }
func (p *process) Frame(b []byte) error                             { p.got = append(p.got, bytes.Clone(b)); return p.refuse }
func (p *process) Placed([]byte, int) error                         { p.placed++; return nil }
func (p *process) Card(peer framework.Incarnation) (framework.Peer, bool) {
	for _, other := range p.j.procs {
		if other.incarnation == peer && !p.alone {
			return other.card(), true
		}
	}
	return framework.Peer{}, false
}
func (p *process) Place(header []byte, size int) (dst []byte) {
	if p.place != nil {
		dst = p.place(header, size)
	}
	return dst
}

// newJob opens modules, with the parameters that change leaves.
func newJob(t *testing.T, size int, change func(rank int, p *params)) *job {
	t.Helper()
	return newJobOf(t, size, change)
}

func newJobOf(t testing.TB, size int, change func(rank int, p *params)) *job {
	t.Helper()
	j := &job{t: t, namespace: t.Name()}
	for rank := range size {
		j.procs = append(j.procs, j.open(rank, change))
	}
	t.Cleanup(func() {
		for _, p := range j.procs {
			p.end()
		}
	})
	return j
}

// open opens one more incarnation of a rank.
func (j *job) open(rank int, change func(rank int, p *params)) *process {
	j.t.Helper()
	j.incarnations++
	p := &process{j: j, rank: rank, incarnation: framework.Incarnation{ID: framework.MakeProcID(0, uint32(rank)), Nonce: j.incarnations}}
	values := new(params)
	framework.FillDefaults(values)
	values.AddressInclude = []string{"lo"}
	if change != nil {
		change(rank, values)
	}
	m, err := Component().Open(j.t.Context(), btl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: framework.Proc{Namespace: j.namespace, Rank: uint32(rank)}, Size: 2, LocalRank: rank, LocalSize: 2},
			Worlds:   framework.NewWorlds(j.namespace),
			Self:     p.incarnation, Engine: progress.New(progress.Options{}), Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
		},
		Params: values, Upcall: p,
	})
	if err != nil {
		j.t.Fatal(err)
	}
	p.module = m.(*module)
	return p
}

// end closes the module, once.
func (p *process) end() {
	if p.isClosed {
		return
	}
	if err := p.Close(); err != nil {
		p.j.t.Error(err)
	}
	p.env.Engine.Close()
}

// card returns the card for Connect.
func (p *process) card() framework.Peer {
	return framework.Peer{Incarnation: p.incarnation, Proc: p.env.Identity.Proc, Blob: p.Blob()}
}

func (p *process) connect(to *process) btl.Endpoint {
	p.j.t.Helper()
	e, err := p.Connect(to.card())
	if err != nil {
		p.j.t.Fatal(err)
	}
	return e
}

// until polls all that are open until cond holds.
func (j *job) until(what string, cond func() bool, held ...*process) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 60*time.Second)
	defer cancel()
	for !cond() {
		if ctx.Err() != nil {
			var state []string
			for _, p := range j.procs {
				state = append(state, fmt.Sprintf("%d frames, lost %v, links %v", len(p.got), p.lost, p.links))
			}
			j.t.Fatalf("%s never happens: %s", what, strings.Join(state, "; "))
		}
		for _, p := range j.procs {
			if !p.isClosed && (len(held) == 0 || held[0] != p) {
				p.pacer.pollsUntilSockets = 0
				p.Poll()
			}
		}
	}
}

// send sends a frame when there is room.
func (j *job) send(e btl.Endpoint, b []byte) {
	j.t.Helper()
	j.until("room", func() bool {
		dst := e.Reserve(len(b), btl.RingStart)
		if dst != nil {
			e.Commit(copy(dst, b))
		}
		return dst != nil
	})
}

// met returns two processes after a first frame from a to b.
func (j *job) met() (a, b *process, e btl.Endpoint) {
	j.t.Helper()
	a, b = j.procs[0], j.procs[1]
	e = a.connect(b)
	j.send(e, []byte("first"))
	j.until("the first frame", func() bool { return len(b.got) == 1 })
	return a, b, e
}

// dial connects without a card.
func (p *process) dial() net.Conn {
	p.j.t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort(p.host.publishedAddrs[0].String(), fmt.Sprint(p.host.listenPort)))
	if err != nil {
		p.j.t.Fatal(err)
	}
	p.j.t.Cleanup(func() { c.Close() })
	return c
}

// lines counts the lines of the log with a text.
func (p *process) lines(what string) int { return strings.Count(p.log.String(), what) }
