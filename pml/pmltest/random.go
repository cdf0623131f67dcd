package pmltest

import (
	"fmt"
	"math/rand/v2"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func randomCases() claims {
	return claims{kittest.New("RandomTrafficArrivesAsSent", 3, (*fixture).randomTraffic)}
}

// message is one of a random script.
type message struct {
	from, to, tag, size int
	mode                pml.Mode
	plane               pml.Plane
	anyTag              bool // it is received with pml.AnyTag
	meet                bool // all wait for what they have begun, before they go on
}

// randomTraffic plays scripts: each rank starts its sends and receives in the order of
// the script. Receives of one sender and plane are posted in the order of their sends,
// so that each has one message only that may match it, whatever the stack.
func (f *fixture) randomTraffic() {
	for range 5 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		script := make([]message, 300)
		for i := range script {
			script[i] = message{
				from: rng.IntN(3), to: rng.IntN(3), tag: rng.IntN(3),
				size:   rng.IntN(1 << (1 + rng.IntN(17))),
				plane:  pml.Plane(rng.IntN(pml.Planes)),
				anyTag: rng.IntN(4) == 0,
				meet:   rng.IntN(16) == 0,
			}
			if rng.IntN(5) == 0 {
				script[i].mode = pml.Synchronous
			}
		}
		f.each(f.comm(), func(rank int, c pml.Comm) { f.play(rank, c, script, seed) })
	}
}

// play is one rank's part of a script.
func (f *fixture) play(rank int, c pml.Comm, script []message, seed uint64) {
	var begun []func() // what waits for each
	begin := func(i int, p pending, err error, buf []byte) {
		m := script[i]
		what := fmt.Sprintf("seed %#x: rank %d: message %d %+v", seed, rank, i, m)
		if err != nil {
			f.Fatalf("%s: %w", what, err)
		}
		begun = append(begun, func() {
			st, err := p.wait(f.Context())
			if err != nil || buf != nil && (st.Source != m.from || st.Tag != m.tag || st.Bytes != m.size) {
				f.Fatalf("%s: %+v %w", what, st, err)
			}
			if buf != nil {
				f.Same(what, buf[:m.size], data(i, m.size))
			}
		})
	}
	for i, m := range script {
		if m.from == rank {
			p, err := started(c.Isend(buffer(data(i, m.size)), m.to, m.tag, m.plane, m.mode))
			begin(i, p, err, nil)
		}
		if m.to == rank {
			tag, buf := m.tag, make([]byte, m.size+1)
			if m.anyTag {
				tag = pml.AnyTag
			}
			p, err := started(c.Irecv(buffer(buf), m.from, tag, m.plane))
			begin(i, p, err, buf)
		}
		if m.meet || i == len(script)-1 {
			for _, wait := range begun {
				wait()
			}
			begun = nil
		}
	}
}
