package tcp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// Programs of the ranks. Each prints its progress in lines that the tests wait for.
var programs = map[string]func(r *player, args []string) error{
	"talk": talk, "transfer": transfer, "greet": greet, "steady": steady,
}

// player is a rank of two.
type player struct {
	ctx     context.Context
	session *mpi.Session
	comm    *mpi.Comm
	me      int
	stop    chan os.Signal // the test has seen enough
}

// say prints a line in one write.
func (r *player) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// beRank is this process's part as a rank.
func beRank(name string, args []string) error {
	r := &player{ctx: context.Background(), stop: make(chan os.Signal, 1)}
	signal.Notify(r.stop, unix.SIGUSR1)
	var err error
	if r.session, err = mpi.OpenSession(r.ctx, mpi.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))); err != nil {
		return err
	}
	world, err := r.session.Group(r.ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	if r.comm, err = mpi.CommFromGroup(r.ctx, world, "two hosts"); err != nil {
		return err
	}
	r.me = r.comm.Rank()
	if err := programs[name](r, args); err != nil {
		return fmt.Errorf("%s: rank %d: %w", name, r.me, err)
	}
	return errors.Join(r.comm.Close(), r.session.Close())
}

// class names the kind of an error.
func class(err error) string {
	switch {
	case errors.Is(err, mpi.ErrProcFailed):
		return "ErrProcFailed"
	case errors.Is(err, mpi.ErrTransport):
		return "ErrTransport"
	}
	return "neither"
}

// mended describes reconnects and retransmissions.
func (r *player) mended() string {
	var again, resent uint64
	for _, p := range r.session.Stats().Peers {
		again, resent = again+p.Reconnects, resent+p.Resent
	}
	return fmt.Sprintf("%d connections made again, %d frames sent again", again, resent)
}

// fill fills b with the data of message i from a rank.
func fill(b []byte, from, i int) {
	word := uint64(from)<<56 + uint64(i)*0x9E3779B97F4A7C15 + 0xA5
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, word)
		word += 0x2545F4914F6CDD1D
	}
	for k := range b {
		b[k] = byte(word >> (8 * k))
	}
}

// wrong returns the index of the first byte that differs from fill, or -1.
func wrong(b []byte, from, i int) int {
	word := uint64(from)<<56 + uint64(i)*0x9E3779B97F4A7C15 + 0xA5
	at := 0
	for ; len(b)-at >= 8; at += 8 {
		if binary.LittleEndian.Uint64(b[at:]) != word {
			return at
		}
		word += 0x2545F4914F6CDD1D
	}
	for k := range b[at:] {
		if b[at+k] != byte(word>>(8*k)) {
			return at + k
		}
	}
	return -1
}

// Sizes of messages that are eager, of several frames, and of half a window.
var talkSizes = []int{8, 100, 5000, 33_000, 64, 300_000, 128 << 10, 17, 2 << 20}

// messagesInFlight is the number of messages in flight in each direction.
const messagesInFlight = 4

// Tags of messages, with one for the last message.
const (
	oneOfMany = 1
	lastOne   = 2
)

// talk exchanges messages until a signal or a failure. Neither rank waits for the other, so that data is
// always in flight in both directions.
func talk(r *player, _ []string) error {
	seen := make(chan struct{})
	go func() { <-r.stop; close(seen) }()
	var once sync.Once
	var failed error
	var when time.Duration
	ends := func(err error) {
		if err != nil {
			once.Do(func() { failed, when = err, now() })
		}
	}
	var both sync.WaitGroup
	both.Go(func() { ends(r.sends(seen)) })
	both.Go(func() { ends(r.receives()) })
	both.Wait()
	if failed != nil {
		r.say("error %d %s rank %d: %v", when, class(failed), r.me, failed)
	}
	<-seen
	return nil
}

func (r *player) sends(seen <-chan struct{}) error {
	var bufs [messagesInFlight][]byte
	var reqs [messagesInFlight]mpi.Request
	for i, tag := 0, oneOfMany; tag != lastOne; i++ {
		k := i % messagesInFlight
		if i >= messagesInFlight {
			if _, err := reqs[k].Wait(r.ctx); err != nil {
				return fmt.Errorf("send of message %d: %w", i-messagesInFlight, err)
			}
		}
		select {
		case <-seen:
			tag = lastOne
		default:
		}
		bufs[k] = append(bufs[k][:0], make([]byte, talkSizes[i%len(talkSizes)])...)
		fill(bufs[k], r.me, i)
		var err error
		if reqs[k], err = r.comm.Isend(bufs[k], 1-r.me, tag); err != nil {
			return fmt.Errorf("send of message %d: %w", i, err)
		}
	}
	return mpi.WaitAll(r.ctx, reqs[:], nil)
}

func (r *player) receives() error {
	buf := make([]byte, slices.Max(talkSizes))
	bytes, pause, before := 0, time.Duration(0), now()
	for i := 0; ; i++ {
		st, err := r.comm.Recv(r.ctx, buf, 1-r.me, mpi.AnyTag)
		if err != nil {
			return fmt.Errorf("receive of message %d: %w", i, err)
		}
		pause, before = max(pause, now()-before), now()
		bytes += st.Bytes
		if want := talkSizes[i%len(talkSizes)]; st.Bytes != want {
			return fmt.Errorf("message %d has %d bytes, want %d", i, st.Bytes, want)
		}
		if at := wrong(buf[:st.Bytes], 1-r.me, i); at >= 0 {
			return fmt.Errorf("byte %d of message %d is wrong", at, i)
		}
		if i == 10*len(talkSizes) {
			r.say("talking")
		}
		if st.Tag == lastOne {
			r.say("right: rank %d: %d messages, %d MiB, at most %v between two, %s", r.me, i+1, bytes>>20, pause.Round(time.Millisecond), r.mended())
			return nil
		}
	}
}

// transfer sends data from rank 0 to rank 1, which checks each byte, and prints its progress.
func transfer(r *player, args []string) error {
	mib, err1 := strconv.Atoi(args[0])
	parts, err2 := strconv.Atoi(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	var bufs [messagesInFlight][]byte
	var reqs [messagesInFlight]mpi.Request
	if err := mpi.Barrier(r.ctx, r.comm); err != nil {
		return err
	}
	began, part := now(), 1
	for i := range mib + messagesInFlight {
		k := i % messagesInFlight
		if bufs[k] == nil {
			bufs[k] = make([]byte, 1<<20)
		} else if _, err := reqs[k].Wait(r.ctx); err != nil {
			return fmt.Errorf("message %d: %w", i-messagesInFlight, err)
		} else if at := wrong(bufs[k], 0, i-messagesInFlight); r.me == 1 && at >= 0 {
			return fmt.Errorf("byte %d of message %d is wrong", at, i-messagesInFlight)
		}
		if r.me == 1 && part < parts && i >= part*mib/parts {
			r.say("part %d", part)
			part++
		}
		if i >= mib {
			continue
		}
		var err error
		if r.me == 0 {
			fill(bufs[k], 0, i)
			reqs[k], err = r.comm.Isend(bufs[k], 1, oneOfMany)
		} else {
			reqs[k], err = r.comm.Irecv(bufs[k], 0, oneOfMany)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if r.me == 1 {
		r.say("took %v", now()-began)
	} else {
		r.say("mended %s", r.mended())
	}
	return nil
}

// greet sends a message each way, and prints the error, if any.
func greet(r *player, _ []string) error {
	_, err := r.comm.Sendrecv(r.ctx, []byte{1}, 1-r.me, oneOfMany, make([]byte, 1), 1-r.me, oneOfMany)
	if err == nil {
		r.say("greeted")
		return nil
	}
	r.say("error %d %s rank %d: %v", now(), class(err), r.me, err)
	return nil
}
