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

// The elements of a scene, which are the length of the message of the dying process to rank 1, the
// state of rank 1's receive, its next operation, and the kind of death. With "cut", the connections
// end, and the launcher reports the death 150 ms later.
var (
	lengths = []string{"17000", "300000", "1048576", "16000"} // The last one has arrived completely at the death.
	states  = []string{"unexpected", "peeked", "claimed", "copying"}
	nexts   = []string{"receive", "probe", "any", "close"}
	deaths  = []string{"kill", "exit", "cut"}
)

// An unreceived message of a dead process is an error or a complete message for its receiver. A
// process that only closes does so at once.
func TestKill_UnreceivedMessages_AreHandled(t *testing.T) {
	var scenes []string
	if *full {
		for i := range len(lengths) * len(states) * len(nexts) * len(deaths) {
			scenes = append(scenes, sceneName(i, i/len(lengths), i/len(lengths)/len(states), i/len(lengths)/len(states)/len(nexts)))
		}
	} else {
		for i := range 6 {
			scenes = append(scenes, sceneName(i, i+i/4, i, i))
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
				Env: append(slices.Clone(env), "FERRY_MTL_OFI_PROVIDER_INCLUDE="+provider, "FERRY_BTL_SHM_DIR="+segments(t), "SOAK_SCENE="+s, "FERRY_SESSION_LINGER=10m")}) // A lingering process does not end in time.
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

func sceneName(length, state, next, death int) string {
	return strings.Join([]string{lengths[length%len(lengths)], states[state%len(states)], nexts[next%len(nexts)], deaths[death%len(deaths)]}, " ")
}

// Tags of the messages of a scene.
const (
	tagOrphan = iota + 1 // The message of the dying process.
	tagThere             // It has arrived.
	tagStream            // Messages, some of which are partially copied.
	tagDie
	tagReady
	tagOther // A message between live processes.
	tagDone
	tagNever
)

const streamedMessages = 20 // Number of messages.

// sceneProgram is the program of a scene. Rank 2 dies, rank 1 has its message, and rank 0 continues.
func sceneProgram(ctx context.Context) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	c, err := newWorldComm(ctx, s, "soak")
	if err != nil {
		return err
	}
	words := strings.Fields(os.Getenv("SOAK_SCENE"))
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	o := &sceneRank{c: c, n: n, state: words[1], next: words[2], death: words[3]}
	switch c.Rank() {
	case 0:
		err = o.exchangeWithLive(ctx)
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

type sceneRank struct {
	c                  *mpi.Comm
	n                  int
	state, next, death string
}

// contents returns the contents of every message of a rank.
func contents(rank, n int) []byte { return bytes.Repeat([]byte{byte(0x11 * (rank + 1))}, n) }

// sendNote sends an empty message.
func (o *sceneRank) sendNote(ctx context.Context, to, tag int) error {
	return o.c.Send(ctx, nil, to, tag)
}

func (o *sceneRank) recvNote(ctx context.Context, from, tag int) error {
	_, err := o.c.Recv(ctx, nil, from, tag)
	return err
}

const otherBytes = 100_000

func (o *sceneRank) exchangeWithLive(ctx context.Context) error {
	return errors.Join(o.recvNote(ctx, 1, tagReady), o.c.Send(ctx, contents(0, otherBytes), 1, tagOther), o.recvNote(ctx, 1, tagDone))
}

func (o *sceneRank) die(ctx context.Context) error {
	if _, err := o.c.Isend(contents(2, o.n), 1, tagOrphan); err != nil {
		return err
	}
	if err := o.sendNote(ctx, 1, tagThere); err != nil {
		return err
	}
	if o.state == "copying" {
		for range streamedMessages {
			if _, err := o.c.Isend(contents(2, o.n), 1, tagStream); err != nil {
				return err
			}
		}
	}
	if err := o.recvNote(ctx, 1, tagDie); err != nil {
		return err
	}
	switch o.death {
	case "exit":
		os.Exit(1)
	case "cut":
		for fd := 3; fd < 200; fd++ {
			switch sa, _ := syscall.Getsockname(fd); sa.(type) {
			case *syscall.SockaddrInet4, *syscall.SockaddrInet6: // The launcher's connection has another address family.
				_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
			}
		}
		time.Sleep(150 * time.Millisecond) // The delay of the launcher.
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (o *sceneRank) survive(ctx context.Context) error {
	c := o.c
	if err := o.recvNote(ctx, 2, tagThere); err != nil {
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
		for range streamedMessages {
			r, err := c.Irecv(make([]byte, o.n), 2, tagStream)
			if err != nil {
				return err
			}
			streams = append(streams, r)
		}
	}
	if err == nil {
		err = o.sendNote(ctx, 2, tagDie)
	}
	if err == nil {
		err = o.awaitDeath()
	}
	if err != nil {
		return err
	}
	if err := o.continueScene(ctx, claimed); err != nil {
		return err
	}
	for _, r := range streams {
		if _, err := r.Wait(ctx); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("a pending receive: %w", err)
		}
	}
	return nil
}

// awaitDeath returns when this process has noticed the death, if necessary through the network
// only.
func (o *sceneRank) awaitDeath() error {
	for end := time.Now().Add(50 * time.Millisecond); o.death != "cut" || time.Now().Before(end); {
		if _, _, err := o.c.Iprobe(2, tagNever); errors.Is(err, mpi.ErrProcFailed) {
			return nil
		} else if err != nil {
			return fmt.Errorf("probe for the dead rank: %w", err)
		}
	}
	return nil
}

// continueScene does the next operation of the scene and exchanges messages with rank 0.
func (o *sceneRank) continueScene(ctx context.Context, claimed *mpi.Message) error {
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
	errs = append(errs, o.sendNote(ctx, 0, tagReady)) // Rank 0 connects only now, and may get resources of the dead process.
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
	errs = append(errs, receive("a message of rank 0", of(0, tagOther)), o.sendNote(ctx, 0, tagDone))
	if buf[0] != contents(0, 1)[0] {
		errs = append(errs, errors.New("no message from rank 0"))
	}
	return errors.Join(errs...)
}
