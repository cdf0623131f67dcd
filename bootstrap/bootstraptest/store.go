package bootstraptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func storeCases() claims {
	return claims{
		kittest.Of("Identity", Want{Size: 4, Timeout: long}, identity),
		kittest.Of("PutIsSeenAfterFence", Want{Size: 4, Timeout: long}, putIsSeenAfterFence),
		kittest.Of("PutIsSeenAfterConstruct", Want{Size: 3, Timeout: long}, putIsSeenAfterConstruct),
		kittest.Of("PutCopiesAndReplaces", Want{Size: 1, Timeout: long}, putCopies),
		kittest.Of("GetWaitsForPut", Want{Size: 2, Timeout: long}, getWaits),
		kittest.Of("GetOfAStranger", Want{Size: 1, Timeout: long}, getOfAStranger),
		kittest.Of("GetNamesWhoNeverPut", Want{Size: 1, Timeout: short}, getTimesOut),
		kittest.Of("NamesAreAnyBytes", Want{Size: 2, Timeout: long}, anyBytes),
		kittest.Of("ValuesUpToTheLimit", Want{Size: 2, Timeout: long}, limits),
	}
}

func identity(_ context.Context, j *job) error {
	for r, c := range j.Clients {
		id := c.Identity()
		switch {
		case id.Proc.Rank != uint32(r) || id.Size != len(j.Clients) || id.Proc.Namespace == "":
			return fmt.Errorf("rank %d of %d has %+v", r, len(j.Clients), id)
		case id.Proc.Namespace != j.Clients[0].Identity().Proc.Namespace:
			return fmt.Errorf("rank %d is in namespace %q", r, id.Proc.Namespace)
		case len(id.Locals) != id.LocalSize || !slices.IsSorted(id.Locals):
			return fmt.Errorf("rank %d: LocalSize %d, Locals %v", r, id.LocalSize, id.Locals)
		case id.LocalRank < 0 || id.LocalRank >= id.LocalSize || id.Locals[id.LocalRank] != uint32(r):
			return fmt.Errorf("rank %d: LocalRank %d in Locals %v", r, id.LocalRank, id.Locals)
		}
	}
	return nil
}

func cardKey(round int) string    { return fmt.Sprintf("card.%d", round) }
func card(round, rank int) []byte { return fmt.Appendf(nil, "card %d of %d", round, rank) }

// seeAll puts a card, meets the others and gets every card, in rounds. Every
// key serves for two, so that waiting for a first value is not enough.
func seeAll(ctx context.Context, j *job, meet func(c bootstrap.Client, round int) error) error {
	n := len(j.Clients)
	return each(all(n), func(r int) error {
		c := j.Clients[r]
		for round := range 20 {
			key := cardKey(round / 2)
			if err := c.Put(ctx, key, card(round, r)); err != nil {
				return err
			}
			if err := meet(c, 2*round); err != nil {
				return err
			}
			for q := range n {
				got, err := c.Get(ctx, j.world()[q], key)
				if err != nil {
					return err
				}
				if !bytes.Equal(got, card(round, q)) {
					return fmt.Errorf("round %d: card of rank %d is %q", round, q, got)
				}
			}
			if err := meet(c, 2*round+1); err != nil { // nobody replaces before all have read
				return err
			}
		}
		return nil
	})
}

func putIsSeenAfterFence(ctx context.Context, j *job) error {
	return seeAll(ctx, j, func(c bootstrap.Client, round int) error {
		return c.Fence(ctx, j.world(), fmt.Sprint(round))
	})
}

func putIsSeenAfterConstruct(ctx context.Context, j *job) error {
	return seeAll(ctx, j, func(c bootstrap.Client, round int) error {
		_, err := c.Construct(ctx, j.world(), fmt.Sprint(round), nil)
		return err
	})
}

func putCopies(ctx context.Context, j *job) error {
	c := j.Clients[0]
	me := c.Identity().Proc
	for _, text := range []string{"first", "again", ""} {
		v := []byte(text)
		if err := c.Put(ctx, "k", v); err != nil {
			return err
		}
		for i := range v {
			v[i] = 'x' // the value was copied
		}
		for range 2 {
			got, err := c.Get(ctx, me, "k")
			if err != nil || string(got) != text {
				return fmt.Errorf("got %q, %v, want %q", got, err, text)
			}
			for i := range got {
				got[i] = 'y' // the result is ours alone
			}
		}
	}
	return nil
}

func getWaits(ctx context.Context, j *job) error {
	got := make(chan error, 1)
	go func() {
		v, err := j.Clients[1].Get(ctx, j.group(0)[0], "late")
		if err == nil && string(v) != "here" {
			err = fmt.Errorf("got %q", v)
		}
		got <- err
	}()
	// The fence is no proof that the Get has begun, but makes it likely.
	if err := each(all(2), func(r int) error { return j.Clients[r].Fence(ctx, j.world(), "start") }); err != nil {
		return errors.Join(err, j.Clients[1].Close(), <-got)
	}
	if err := j.Clients[0].Put(ctx, "late", []byte("here")); err != nil {
		return errors.Join(err, j.Clients[1].Close(), <-got)
	}
	return <-got
}

func getOfAStranger(ctx context.Context, j *job) error {
	c := j.Clients[0]
	ns := c.Identity().Proc.Namespace
	_, err := c.Get(ctx, framework.Proc{Namespace: ns, Rank: 1 << 20}, "k")
	_, err2 := c.Get(ctx, framework.Proc{Namespace: ns + "x"}, "k")
	return errors.Join(wantIs("rank beyond the job", err, framework.ErrRank), wantIs("other job", err2, framework.ErrRank))
}

func getTimesOut(ctx context.Context, j *job) error {
	_, err := j.Clients[0].Get(ctx, j.group(0)[0], "never")
	return errors.Join(wantIs("get", err, framework.ErrTimeout), wantMissing("get", err, j.group(0), nil))
}

// anyBytes: a Go string need not be UTF-8, nor end where C's would.
func anyBytes(ctx context.Context, j *job) error {
	names := []string{"", "\xff\xfe", "a\x00b", "a\x00c", "a=b c\n", "\u20ac"}
	return each(all(2), func(r int) error {
		c := j.Clients[r]
		for _, name := range names {
			if err := c.Put(ctx, name, []byte(name+"!")); err != nil {
				return err
			}
		}
		for _, name := range names {
			if err := c.Fence(ctx, j.world(), name); err != nil {
				return fmt.Errorf("tag %q: %w", name, err)
			}
			v, err := c.Get(ctx, j.group(1 - r)[0], name)
			if err != nil || string(v) != name+"!" {
				return fmt.Errorf("key %q: %q, %v", name, v, err)
			}
		}
		return nil
	})
}

func limits(ctx context.Context, j *job) error {
	name := func(n int) string { return string(bytes.Repeat([]byte{'n'}, n)) }
	over := func(what string, err error) error { return wantIs(what, err, framework.ErrUnsupported) }
	return each(all(2), func(r int) error {
		c := j.Clients[r]
		if err := c.Put(ctx, name(bootstrap.MaxName), make([]byte, bootstrap.MaxValue)); err != nil {
			return err
		}
		cons, err := c.Construct(ctx, j.world(), name(bootstrap.MaxName), bytes.Repeat([]byte{byte(r)}, bootstrap.MaxPayload))
		if err != nil {
			return err
		}
		for q, p := range cons.Payloads {
			if len(p) != bootstrap.MaxPayload || p[0] != byte(q) || p[len(p)-1] != byte(q) {
				return fmt.Errorf("payload of rank %d is damaged", q)
			}
		}
		v, err := c.Get(ctx, j.group(1 - r)[0], name(bootstrap.MaxName))
		if err != nil || len(v) != bootstrap.MaxValue {
			return fmt.Errorf("got %d bytes, %v", len(v), err)
		}
		_, err1 := c.Construct(ctx, j.world(), "t", make([]byte, bootstrap.MaxPayload+1))
		_, err2 := c.Construct(ctx, j.world(), name(bootstrap.MaxName+1), nil)
		_, err3 := c.Get(ctx, j.group(r)[0], name(bootstrap.MaxName+1))
		if err := errors.Join(
			over("value over the limit", c.Put(ctx, "k", make([]byte, bootstrap.MaxValue+1))),
			over("key over the limit", c.Put(ctx, name(bootstrap.MaxName+1), nil)),
			over("payload over the limit", err1),
			over("tag over the limit", err2),
			over("get over the limit", err3),
			over("fence tag over the limit", c.Fence(ctx, j.world(), name(bootstrap.MaxName+1))),
		); err != nil {
			return err
		}
		// None of that has harmed the connection.
		return c.Fence(ctx, j.world(), "after")
	})
}
