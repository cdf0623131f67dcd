package threads

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/progress"
	"go.uber.org/goleak"
)

// impatient engines park at once.
var impatient = progress.Options{Spin: time.Nanosecond, Yield: time.Nanosecond}

func newTestTeam(t testing.TB, par *params, n int, opt progress.Options) *colltest.Team {
	team, err := colltest.NewTeam(Component(), par, n, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(team.Close)
	return team
}

var standard = params{FlatRanks: 2, Chunk: 16 << 10, Most: 512 << 10}

// sum is the sum of uint64.
var sum = coll.Reducer{Quick: true, Apply: func(inout, in []byte) {
	for i := 0; i < len(in); i += 8 {
		binary.LittleEndian.PutUint64(inout[i:], binary.LittleEndian.Uint64(inout[i:])+binary.LittleEndian.Uint64(in[i:]))
	}
}}

// carryAll carries all operations out in turns. Operands depend on the rank, the turn and the place.
func carryAll(t *testing.T, team *colltest.Team, n, rounds int, sizes []int) {
	ctx := t.Context()
	err := team.Run(func(r *colltest.Rank) error {
		for turn := range rounds {
			for k, size := range sizes {
				root := (turn + k) % n
				in, out := make([]byte, size), make([]byte, size)
				for i := 0; i < size; i += 8 {
					binary.LittleEndian.PutUint64(in[i:], uint64(r.Rank+turn+i))
				}
				total := func(i int) uint64 { return uint64(n*(n-1)/2 + n*(turn+i)) }
				check := func(op coll.Operation, want func(i int) uint64) error {
					for i := 0; i < size; i += 8 {
						if got := binary.LittleEndian.Uint64(out[i:]); got != want(i) {
							return fmt.Errorf("rank %d, turn %d: %v of %d bytes: %d at %d, want %d", r.Rank, turn, op, size, got, i, want(i))
						}
					}
					return nil
				}
				for _, op := range []coll.Operation{coll.Allreduce, coll.Barrier, coll.Reduce, coll.Bcast} {
					args := coll.Args{Root: root, Size: size, Own: size, Elem: 8, Quick: true}
					b := coll.Buffers{In: in, Out: out}
					switch {
					case op == coll.Barrier:
						args = coll.Args{}
					case op == coll.Reduce && r.Rank != root:
						b.Out = nil
					case op == coll.Bcast:
						if b.In = nil; r.Rank == root {
							copy(out, in)
						}
					}
					s, err := team.Plan(r, op, args)
					if err == nil {
						err = r.Carry(ctx, s, b, sum)
					}
					switch {
					case err != nil:
						return fmt.Errorf("rank %d: %v: %w", r.Rank, op, err)
					case op == coll.Allreduce || op == coll.Reduce && r.Rank == root:
						err = check(op, total)
					case op == coll.Bcast:
						err = check(op, func(i int) uint64 { return uint64(root + turn + i) })
					}
					if err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRanks_ParkAtOnce_NoWakeUpIsLost(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, processors := range []int{1, 2} {
		for _, n := range []int{2, 3, 5, 9, 70} {
			t.Run(fmt.Sprintf("GOMAXPROCS=%d/ranks=%d", processors, n), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
				for _, opt := range []progress.Options{impatient, {}} {
					carryAll(t, newTestTeam(t, &standard, n, opt), n, 600/n, []int{8, 2000, 40000})
				}
			})
		}
	}
}
