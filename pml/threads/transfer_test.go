package threads

import (
	"bytes"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// TestTransfer_CopiedFromBothEnds_IsWholeAndCompletesOnce has goroutines claim chunks from both
// ends, also after the last one.
func TestTransfer_CopiedFromBothEnds_IsWholeAndCompletesOnce(t *testing.T) {
	e := progress.New(progress.Options{})
	defer e.Close()
	p := new(Params)
	framework.FillDefaults(p)
	team := NewTeam(framework.Life{ID: 1, Nonce: 1}, e, 2, *p)
	defer team.Close()
	o := newOffer()
	for _, size := range []int{chunkSize + 1, 5 * chunkSize, 37*chunkSize - 3} {
		from, to := make([]byte, size), make([]byte, size-1)
		for i := range from {
			from[i] = byte(i * 7 >> 3)
		}
		o.buf, o.from = pml.Buffer{Bytes: from}, team.Rank(1)
		o.open(team.Rank(0), &receive{buf: pml.Buffer{Bytes: to}}, int64(len(to)))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range 3 {
					o.copyChunks(i%2 == 0, nil)
					cpu.Pause()
				}
			})
		}
		wg.Wait()
		if !bytes.Equal(to, from[:len(to)]) {
			t.Fatalf("%d bytes are not what was sent", size)
		}
		for i, want := range []kind{kindReceived, kindSent} {
			r := team.Rank(i)
			c := r.peek()
			if c == nil || c.header().kind() != want {
				t.Fatalf("rank %d: cell %+v, want one of kind %d", i, c, want)
			}
			if r.pointer() != &o.msg {
				t.Error("another message")
			}
			if r.advance(); r.peek() != nil {
				t.Errorf("rank %d was notified twice", i)
			}
			r.release()
		}
	}
}

// TestOffer_WithdrawnAndTakenAtOnce_OneSucceeds is the word that decides.
func TestOffer_WithdrawnAndTakenAtOnce_OneSucceeds(t *testing.T) {
	for round := range 2000 {
		o := newOffer()
		o.state.Store(offerInRing)
		var withdrawn, taken bool
		var wg sync.WaitGroup
		wg.Go(func() { withdrawn = o.withdraw() })
		wg.Go(func() {
			if o.take(offerHeld) {
				if round%2 == 0 {
					o.state.Store(offerMatched)
					taken = true
					return
				}
				o.state.Store(offerUnmatched)
				taken = o.take(offerMatched)
			}
		})
		wg.Wait()
		if withdrawn == taken {
			t.Fatalf("round %d: withdrawn %t, taken %t", round, withdrawn, taken)
		}
	}
}
