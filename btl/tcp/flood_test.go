package tcp_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/mpi"
)

// Unknown callers connect to each rank of a job, with garbage, with cut and replayed handshakes, and
// silently. Two ranks exchange messages meanwhile, and a third one joins. Replays need root. Without it,
// more handshakes are cut.
//
//	go test ./btl/tcp -v -run Flood -full
func TestFlood_UnknownCallers_JobCompletes(t *testing.T) {
	whole(t)
	strangers, rounds := size(10_000, 500), size(100_000, 4000)
	run := func(flood func(ports []string, over time.Duration), over time.Duration) steadiness {
		j := startLine(t, slices.Concat([]string{"-n", "3", "--set", "btl=self,tcp"}, rank("steady", strconv.Itoa(rounds))))
		ports := j.until(3, "listens ")
		if flood != nil {
			flood(ports, over)
		}
		j.signal()
		return steadinessOf(t, j.well())
	}
	recorded, err := overhear()
	if err != nil {
		t.Logf("no handshake is replayed: %v", err)
	}
	alone := run(nil, 0)
	said := recorded()
	if err == nil && said == nil {
		t.Error("no handshake was overheard")
	}
	var f flood
	beside := run(func(ports []string, over time.Duration) { f.pour(ports, said, strangers, over) }, alone.took*7/10)
	f.all.Wait()
	t.Logf("alone: %v; with %d strangers in %v: %v (%.2f times); descriptors %d and at most %d; turned away: %v",
		alone.took.Round(time.Millisecond), strangers, f.took.Round(time.Millisecond), beside.took.Round(time.Millisecond),
		float64(beside.took)/float64(alone.took), alone.most, beside.most, &f)
	if f.failed > 0 || f.turned() != strangers {
		t.Errorf("%d strangers are let stand: %v", f.failed, f.err)
	}
	if beside.took > 2*alone.took+size(0, 20*time.Second) { // a short job takes the time of its neighbours
		t.Error("the job takes more than twice the time")
	}
	if beside.most > alone.most+256+16 {
		t.Errorf("strangers take %d descriptors", beside.most-alone.most)
	}
	if alone.logged != 0 || beside.logged != 3 {
		t.Errorf("%d lines in the log of 3 ranks, %d without strangers:\n%s", beside.logged, alone.logged, alone.said)
	}
}

// kinds of strangers
var kinds = []string{"garbage", "cut", "replayed", "silent"}

// flood is strangers.
type flood struct {
	mu     sync.Mutex
	kinds  [4]int // that were turned away
	failed int
	err    error
	took   time.Duration
	all    *sync.WaitGroup
}

func (f *flood) turned() (n int) {
	for _, k := range f.kinds {
		n += k
	}
	return n
}

func (f *flood) String() string {
	var all []string
	for i, n := range f.kinds {
		all = append(all, fmt.Sprint(n, " ", kinds[i]))
	}
	return strings.Join(all, ", ")
}

// pour connects n unknown callers to the ports in turns, spread over a time. said is the recorded
// handshake of another job, or nil.
func (f *flood) pour(ports []string, said []byte, n int, over time.Duration) {
	start := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		time.Sleep(time.Until(start.Add(over * time.Duration(i) / time.Duration(n))))
		wg.Go(func() {
			err := connectUnknown(ports[i%len(ports)], i/len(ports)%len(kinds), said)
			f.mu.Lock()
			defer f.mu.Unlock()
			if err != nil {
				f.failed, f.err = f.failed+1, err
				return
			}
			f.kinds[i/len(ports)%len(kinds)]++
		})
	}
	f.took = time.Since(start)
	if *full {
		wg.Wait() // the last silent ones have 5 s; otherwise the end of the job is theirs
	}
	f.all = &wg
}

// connectUnknown dials, sends bytes of a kind, and waits until it is refused.
func connectUnknown(port string, kind int, said []byte) error {
	c, err := net.DialTimeout("tcp", port, time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if len(said) == 0 && kinds[kind] != "silent" {
		said = append([]byte("ferrytc\x01"), make([]byte, 150)...)
		rand.Read(said[8:])
	}
	var b []byte
	switch kinds[kind] {
	case "garbage":
		b = make([]byte, 4096)
		rand.Read(b)
	case "cut":
		b = said[:len(said)/4]
	case "replayed":
		b = said
	}
	// It may be refused earlier.
	if _, err := c.Write(b); err == nil && kinds[kind] == "cut" {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	b = make([]byte, 1024)
	for {
		if _, err := c.Read(b); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				return err
			}
			return nil
		}
	}
}

// overhear records the hello and the proof of a caller on loopback. The function ends the recording, and
// returns them.
func overhear() (recorded func() []byte, err error) {
	none := func() []byte { return nil }
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return none, err
	}
	lo, err := net.InterfaceByName("lo")
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 8, Ifindex: lo.Index}) // ETH_P_IP, as a network has it
	}
	if err != nil {
		unix.Close(fd)
		return none, err
	}
	stop, over := make(chan struct{}), make(chan struct{})
	hellos := map[uint16][]byte{} // by port; not each is followed by a proof
	var whole []byte
	go func() {
		defer close(over)
		b := make([]byte, 1<<16)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					continue
				}
			}
			port, said := payload(b[:n])
			switch {
			case len(said) == helloSize && strings.HasPrefix(string(said), "ferrytc"):
				hellos[port] = slices.Clone(said)
			case len(said) == proofSize && hellos[port] != nil && whole == nil:
				whole = slices.Concat(hellos[port], said)
			}
		}
	}()
	return func() []byte {
		close(stop)
		<-over
		unix.Close(fd)
		return whole
	}, nil
}

// Sizes of the parts of a handshake that a caller sends.
const (
	helloSize = 112
	proofSize = 40
)

// payload returns the TCP payload of an IPv4 packet, and its source port.
func payload(b []byte) (port uint16, said []byte) {
	if len(b) < 40 || b[0]>>4 != 4 || b[9] != unix.IPPROTO_TCP {
		return 0, nil
	}
	if total := int(binary.BigEndian.Uint16(b[2:])); total <= len(b) {
		b = b[:total]
	}
	if b = b[min(4*int(b[0]&15), len(b)):]; len(b) < 20 {
		return 0, nil
	}
	return binary.BigEndian.Uint16(b), b[min(4*int(b[12]>>4), len(b)):]
}

// steadiness is the result of a job among unknown callers.
type steadiness struct {
	took         time.Duration
	most, logged int
	said         string
}

func steadinessOf(t *testing.T, out string) (s steadiness) {
	t.Helper()
	s.said = out
	for line := range strings.Lines(out) {
		if strings.Contains(line, "connection was refused") {
			s.logged++
		}
		var ns int64
		var most int
		if n, _ := fmt.Sscanf(line, "steady %d", &ns); n == 1 {
			s.took = time.Duration(ns)
		}
		if n, _ := fmt.Sscanf(line, "descriptors %d", &most); n == 1 {
			s.most = max(s.most, most)
		}
	}
	if s.took == 0 || s.most == 0 {
		t.Fatal(out)
	}
	return s
}

// mostDescriptors returns the largest number of open descriptors until stop is closed.
func mostDescriptors(stop chan struct{}) (most int) {
	for {
		all, _ := os.ReadDir("/proc/self/fd")
		most = max(most, len(all))
		select {
		case <-stop:
			return most
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// steady exchanges messages and sums between ranks 0 and 1. Meanwhile rank 0 connects to rank 2. It prints
// the elapsed time and the largest number of descriptors.
func steady(r *player, args []string) error {
	rounds, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	route, err := r.comm.Transport((r.me + 1) % 3)
	if err != nil {
		return err
	}
	r.say("listens %s", strings.Fields(route.Device)[0])
	stop, counted := make(chan struct{}), make(chan int)
	go func() { counted <- mostDescriptors(stop) }()
	word := make([]byte, 8)
	if r.me == 2 {
		if _, err := r.comm.Recv(r.ctx, word, 0, oneOfMany); err != nil {
			return err
		}
		if err := r.comm.Send(r.ctx, word, 0, oneOfMany); err != nil {
			return err
		}
	} else {
		two, err := r.comm.Group().Incl(0, 1)
		if err != nil {
			return err
		}
		pair, err := mpi.CommFromGroup(r.ctx, two, "pair") // without a message to rank 2
		if err != nil {
			return err
		}
		defer pair.Close()
		began := now()
		out, in := make([]byte, 100_000), make([]byte, 100_000)
		for i := range rounds {
			n := []int{8, 100, 5000, 100_000}[i%4]
			fill(out[:n], r.me, i)
			if _, err := pair.Sendrecv(r.ctx, out[:n], 1-r.me, oneOfMany, in[:n], 1-r.me, oneOfMany); err != nil {
				return err
			}
			if at := wrong(in[:n], 1-r.me, i); at >= 0 {
				return fmt.Errorf("byte %d of message %d is wrong", at, i)
			}
			sum := []int{0}
			if err := mpi.Allreduce(r.ctx, pair, []int{i + r.me}, sum, mpi.Sum[int]()); err != nil || sum[0] != 2*i+1 {
				return fmt.Errorf("sum %d of round %d, %w", sum[0], i, err)
			}
			if i == rounds/2 && r.me == 0 {
				fill(word, 0, i)
				if _, err := r.comm.Sendrecv(r.ctx, word, 2, oneOfMany, word, 2, oneOfMany); err != nil || wrong(word, 0, i) >= 0 {
					return fmt.Errorf("rank 2 answers %v, %w", word, err)
				}
			}
		}
		if r.me == 0 {
			r.say("steady %d", now()-began)
		}
	}
	// The remaining callers are refused.
	for seen := false; r.me == 0 && !seen; {
		select {
		case <-r.stop:
			seen = true
		case <-time.After(time.Millisecond):
			if _, _, err := r.comm.Iprobe(1, lastOne); err != nil {
				return err
			}
		}
	}
	if r.me == 0 {
		for peer := 1; peer < 3; peer++ {
			if err := r.comm.Send(r.ctx, nil, peer, lastOne); err != nil {
				return err
			}
		}
	} else if _, err := r.comm.Recv(r.ctx, nil, 0, lastOne); err != nil {
		return err
	}
	close(stop)
	r.say("descriptors %d", <-counted)
	return nil
}
