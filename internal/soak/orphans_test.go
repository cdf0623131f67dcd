package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mpi"
)

// What is left behind when a process dies, in the words of a scene: the length of its
// message to rank 1, what rank 1 has done about it, what it does next, and how the process
// dies. Cut: its connections end, and the launcher tells of the death 150 ms later.
var (
	lengths = []string{"17000", "300000", "1048576", "16000"} // the last is with the receiver when it is found
	states  = []string{"unexpected", "peeked", "claimed", "copying"}
	nexts   = []string{"receive", "probe", "any", "close"}
	deaths  = []string{"kill", "exit", "cut"}
)

// TestKillLeavesMessages: what a process that dies has sent, and nobody has received, is an
// error or a message of who receives it, and no crash; who only closes does so at once.
func TestKillLeavesMessages(t *testing.T) {
	var scenes []string
	if *full {
		for i := range len(lengths) * len(states) * len(nexts) * len(deaths) {
			scenes = append(scenes, scene(i, i/len(lengths), i/len(lengths)/len(states), i/len(lengths)/len(states)/len(nexts)))
		}
	} else {
		for i := range 6 {
			scenes = append(scenes, scene(i, i+i/4, i, i))
		}
	}
	env := overNetwork(t)
	providers := []string{"tcp;ofi_rxm"}
	if lib, err := libfabric.Load("libfabric.so.1"); err == nil && *full {
		if infos, err := lib.Infos("net;ofi_rxm"); err == nil && len(infos.List) > 0 {
			providers = append(providers, "net;ofi_rxm")
		}
	}
	var slowest time.Duration
	for _, provider := range providers {
		for _, s := range scenes {
			r := localtest.RunJob(t, localtest.Job{Size: 3, Program: "orphans", MayFail: true, Timeout: time.Minute,
				Env: append(slices.Clone(env), "FERRY_MTL_OFI_PROVIDER_INCLUDE="+provider, "FERRY_BTL_SHM_DIR="+segments(t), "SOAK_SCENE="+s, "FERRY_SESSION_LINGER=10m")}) // who lingers does not end in time
			for rank, err := range r.Exit {
				if died := rank == 2; died != (err != nil) {
					t.Errorf("%s, %s: rank %d: %v\n%.3000s", provider, s, rank, err, r.Output[rank])
				}
			}
			if d, err := time.ParseDuration(strings.TrimSpace(r.Output[1])); err == nil {
				slowest = max(slowest, d)
			}
		}
	}
	t.Logf("%d deaths: close takes at most %v", len(providers)*len(scenes), slowest)
}

func scene(length, state, next, death int) string {
	return strings.Join([]string{lengths[length%len(lengths)], states[state%len(states)], nexts[next%len(nexts)], deaths[death%len(deaths)]}, " ")
}

// The tags of orphans.
const (
	tagOrphan = iota + 1 // of the message that is left behind
	tagThere             // it is there
	tagStream            // of messages, some of which are half copied
	tagDie
	tagReady
	tagOther // of a message between those that live
	tagDone
	tagNever
)

const streamed = 20 // messages

// orphans is a scene: rank 2 dies, rank 1 has its message, and rank 0 goes on.
func orphans(ctx context.Context) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	c, err := world(ctx, s, "soak")
	if err != nil {
		return err
	}
	words := strings.Fields(os.Getenv("SOAK_SCENE"))
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	o := &orphanage{c: c, n: n, state: words[1], next: words[2], death: words[3]}
	switch c.Rank() {
	case 0:
		err = o.other(ctx)
	case 1:
		err = o.survive(ctx)
	case 2:
		return o.die(ctx)
	}
	if err != nil {
		return err
	}
	start := time.Now()
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		return err
	}
	if c.Rank() == 1 {
		fmt.Println(time.Since(start))
	}
	return nil
}

type orphanage struct {
	c                  *mpi.Comm
	n                  int
	state, next, death string
}

// contents are those of every message of a rank.
func contents(rank, n int) []byte { return bytes.Repeat([]byte{byte(0x11 * (rank + 1))}, n) }

// note sends nothing but its tag.
func (o *orphanage) note(ctx context.Context, to, tag int) error { return o.c.Send(ctx, nil, to, tag) }

func (o *orphanage) noted(ctx context.Context, from, tag int) error {
	_, err := o.c.Recv(ctx, nil, from, tag)
	return err
}

const otherBytes = 100_000

func (o *orphanage) other(ctx context.Context) error {
	return errors.Join(o.noted(ctx, 1, tagReady), o.c.Send(ctx, contents(0, otherBytes), 1, tagOther), o.noted(ctx, 1, tagDone))
}

func (o *orphanage) die(ctx context.Context) error {
	if _, err := o.c.Isend(contents(2, o.n), 1, tagOrphan); err != nil {
		return err
	}
	if err := o.note(ctx, 1, tagThere); err != nil {
		return err
	}
	if o.state == "copying" {
		for range streamed {
			if _, err := o.c.Isend(contents(2, o.n), 1, tagStream); err != nil {
				return err
			}
		}
	}
	if err := o.noted(ctx, 1, tagDie); err != nil {
		return err
	}
	switch o.death {
	case "exit":
		os.Exit(1)
	case "cut":
		for fd := 3; fd < 200; fd++ {
			switch sa, _ := syscall.Getsockname(fd); sa.(type) {
			case *syscall.SockaddrInet4, *syscall.SockaddrInet6: // the launcher's is of another kind
				_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
			}
		}
		time.Sleep(150 * time.Millisecond) // what the launcher needs
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (o *orphanage) survive(ctx context.Context) error {
	c := o.c
	if err := o.noted(ctx, 2, tagThere); err != nil {
		return err
	}
	var claimed *mpi.Message
	var streams []mpi.Request
	var err error
	switch o.state {
	case "peeked":
		_, err = c.Probe(ctx, 2, tagOrphan)
	case "claimed":
		claimed, _, err = c.Mprobe(ctx, 2, tagOrphan)
	case "copying":
		for range streamed {
			r, err := c.Irecv(make([]byte, o.n), 2, tagStream)
			if err != nil {
				return err
			}
			streams = append(streams, r)
		}
	}
	if err == nil {
		err = o.note(ctx, 2, tagDie)
	}
	if err == nil {
		err = o.untilDeath()
	}
	if err != nil {
		return err
	}
	if err := o.goOn(ctx, claimed); err != nil {
		return err
	}
	for _, r := range streams {
		if _, err := r.Wait(ctx); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("a receive that had begun: %w", err)
		}
	}
	return nil
}

// untilDeath returns when this process knows of the death; and where only the network knows,
// when it does.
func (o *orphanage) untilDeath() error {
	for end := time.Now().Add(50 * time.Millisecond); o.death != "cut" || time.Now().Before(end); {
		if _, _, err := o.c.Iprobe(2, tagNever); errors.Is(err, mpi.ErrProcFailed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("a probe for the dead: %w", err)
		}
	}
	return nil
}

// goOn does what the scene says is next, and talks with rank 0.
func (o *orphanage) goOn(ctx context.Context, claimed *mpi.Message) error {
	buf := make([]byte, 1<<20)
	check := func(what string, st mpi.Status, err error) error {
		switch {
		case errors.Is(err, mpi.ErrProcFailed) || errors.Is(err, mpi.ErrProcFailedPending):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case !bytes.Equal(buf[:st.Bytes], contents(st.Source, st.Bytes)):
			return fmt.Errorf("%s: %d bytes as of rank %d, beginning with %#x", what, st.Bytes, st.Source, buf[0])
		}
		return nil
	}
	receive := func(what string, f func(context.Context, []byte) (mpi.Status, error)) error {
		st, err := f(ctx, buf)
		return check(what, st, err)
	}
	of := func(src, tag int) func(context.Context, []byte) (mpi.Status, error) {
		return func(ctx context.Context, buf []byte) (mpi.Status, error) { return o.c.Recv(ctx, buf, src, tag) }
	}
	var errs []error
	if claimed != nil && o.next != "close" {
		errs = append(errs, receive("what was claimed", claimed.Recv))
	}
	errs = append(errs, o.note(ctx, 0, tagReady)) // rank 0 connects only now, and may get what was the dead one's
	switch o.next {
	case "receive":
		errs = append(errs, receive("a receive from the dead", of(2, tagOrphan)))
	case "any":
		errs = append(errs, receive("a receive from any", of(mpi.AnySource, tagOrphan)))
	case "probe":
		for _, src := range []int{2, mpi.AnySource} {
			_, _, err := o.c.Iprobe(src, tagOrphan)
			errs = append(errs, check("a probe", mpi.Status{}, err))
		}
		m, _, ok, err := o.c.Improbe(mpi.AnySource, tagOrphan)
		if errs = append(errs, check("a claiming probe", mpi.Status{}, err)); ok {
			errs = append(errs, receive("what it has claimed", m.Recv))
		}
	}
	errs = append(errs, receive("a message of rank 0", of(0, tagOther)), o.note(ctx, 0, tagDone))
	if buf[0] != contents(0, 1)[0] {
		errs = append(errs, errors.New("nothing has come of rank 0"))
	}
	return errors.Join(errs...)
}
