package host

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/fork"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// process is a plugin that runs. It knows nothing of paths.
type process struct {
	offer  wire.Offer
	mem    []byte
	cells  int
	health time.Duration

	cmd    *exec.Cmd
	thread *fork.Thread // the child ends with the thread that started it
	bell   func()       // rings whoever polls the module
	ctl    *os.File
	output *os.File // what it prints
	log    *slog.Logger
	quit   chan struct{}
	done   sync.WaitGroup

	published atomic.Uint64 // messages that the plugin says it has sent
	asked     atomic.Int32  // pings since the last answer

	mu   sync.Mutex
	ends error       // how it ended; nil: it runs
	over atomic.Bool // likewise
}

// start starts the plugin, and waits for its offer. It writes to wake, an eventfd, to wake
// this process. An error wraps errRefused if the file is not what it should be.
func (c component) start(ctx context.Context, env btl.Env, params *params, wake int) (p *process, err error) {
	file, err := c.open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	defer file.Close()
	p = &process{cells: params.Ring, health: params.Health, bell: env.Bell().Ring, quit: make(chan struct{})}
	memory, theirs, err := p.descriptors()
	if err != nil {
		p.free()
		return nil, err
	}
	defer memory.Close()
	defer theirs.Close()
	waker, err := above(wake, 0)
	if err != nil {
		p.free()
		return nil, err
	}
	defer waker.Close()
	checked, err := above(int(file.Fd()), wire.WakeFD+1) // the child has others below
	if err != nil {
		p.free()
		return nil, err
	}
	defer checked.Close()

	// By descriptor: what was checked is what is executed.
	p.cmd = &exec.Cmd{
		Path: "/proc/self/fd/" + strconv.Itoa(int(checked.Fd())), Args: c.Command, Env: c.environ(),
		ExtraFiles:  []*os.File{theirs, memory, waker},
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	p.log = c.logger(env)
	r, w, err := os.Pipe()
	if err != nil {
		p.free()
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	p.thread = fork.New()
	if cpu.Available() == 1 {
		p.thread.Do(everywhere)
	}
	err = p.thread.Start(p.cmd)
	w.Close()
	if err != nil {
		r.Close()
		p.free()
		return nil, fmt.Errorf("%s: %w", c.Command[0], err)
	}
	p.output = r
	p.done.Go(func() { defer r.Close(); lines(r, p.log) })
	theirs.Close() // so that the plugin's end is noticed
	if err := p.meet(ctx, env, params.Start); err != nil {
		p.kill()
		p.close()
		if err := p.ended(); err != nil {
			return nil, err
		}
		return nil, err
	}
	p.done.Go(p.listen)
	p.done.Go(p.watch)
	return p, nil
}

// everywhere lets the thread, and what it starts, run on all processors. A rank that is bound to
// one polls there, and its plugin would wait for its turn (as cpu.ForRanks, which see).
func everywhere() {
	var all unix.CPUSet
	for i := range len(all) * bits.UintSize {
		all.Set(i)
	}
	_ = unix.SchedSetaffinity(0, &all) // it stays where it is then
}

// descriptors makes the memory and the socket.
func (p *process) descriptors() (memory, theirs *os.File, err error) {
	fd, err := unix.MemfdCreate("ferry-plugin", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, err
	}
	memory = os.NewFile(uintptr(fd), "memory")
	size := wire.Size(p.cells)
	// Pages come as they are used. No file system limits them, so that none fails to come.
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		p.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		wire.Layout(p.mem, p.cells)
		wire.Populate(p.mem, p.cells)
	}
	var pair [2]int
	if err == nil {
		pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		memory.Close()
		return nil, nil, fmt.Errorf("memory for a plugin: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true) // so that its reads have deadlines
	p.ctl = os.NewFile(uintptr(pair[0]), "control")
	return memory, os.NewFile(uintptr(pair[1]), "plugin"), nil
}

// environ is what the plugin sees of this process's environment: nothing but what its entry
// lists, and no secret of the job.
func (c component) environ() []string {
	env := []string{wire.Environment + "=" + strconv.Itoa(wire.Version)}
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TMPDIR"}, c.Env...) {
		if strings.Contains(name, "=") {
			env = append(env, name)
		} else if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// meet says what the transport is opened with, and takes the answer.
func (p *process) meet(ctx context.Context, env btl.Env, limit time.Duration) error {
	id := env.Identity
	start := wire.Start{
		Version: wire.Version, Nonce: env.Self.Nonce, Rank: id.Proc.Rank, Size: uint32(max(id.Most, id.Size)),
		LocalRank: uint32(id.LocalRank), LocalSize: uint32(id.MostLocal()), Namespace: id.Proc.Namespace, Node: env.Node, Dir: id.Dir,
	}
	if _, err := p.ctl.Write(start.Bytes()); err != nil {
		return p.early()
	}
	deadline := time.Now().Add(limit)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = p.ctl.SetReadDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = p.ctl.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	kind, body, err := p.hear()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the plugin has not answered within %v (start_timeout)", limit)
	case err != nil:
		return p.early()
	case kind == wire.Failed:
		return fmt.Errorf("the plugin says: %.500q", body)
	case kind != wire.Ready:
		return fmt.Errorf("the plugin begins with control frame %d", kind)
	}
	o, err := wire.ParseOffer(body)
	if err != nil {
		return fmt.Errorf("what the plugin offers: %w", err)
	}
	limits := int(o.Frame) < btl.MinFrameLimit || int(o.Frame) > wire.FrameLimit(p.cells) || o.Eager < 1 || o.Eager > o.Frame
	if limits || o.Latency == 0 || o.Device == "" {
		return fmt.Errorf("what the plugin offers makes no sense: %+v", o)
	}
	p.offer = o
	return p.ctl.SetReadDeadline(time.Time{})
}

// early is the error of a plugin that has closed its control socket before it answered.
func (p *process) early() error {
	p.kill()
	return fmt.Errorf("the plugin has ended before it answered: %w; a plugin calls plugin.Serve, or speaks what docs/plugin-protocol.md says", p.status())
}

// hear returns the next control frame.
func (p *process) hear() (kind uint32, body []byte, err error) {
	b := make([]byte, wire.ControlLimit)
	n, err := p.ctl.Read(b)
	if err != nil {
		return 0, nil, err
	}
	if n < 4 {
		return 0, nil, fmt.Errorf("a control frame of %d bytes", n)
	}
	return binary.LittleEndian.Uint32(b), b[4:n], nil
}

// listen takes the plugin's answers to pings, and finds out that it has ended.
func (p *process) listen() {
	for {
		kind, body, err := p.hear()
		select {
		case <-p.quit:
			return
		default:
		}
		switch {
		case err != nil:
			p.kill()
			p.end(fmt.Errorf("the plugin has ended: %w", p.status()))
		case kind != wire.Pong || len(body) != 16:
			p.end(fmt.Errorf("the plugin sent control frame %d of %d bytes", kind, len(body)))
		default:
			p.asked.Store(0)
			if n := binary.LittleEndian.Uint64(body[8:]); p.published.Swap(n) != n {
				p.bell()
			}
			continue
		}
		return
	}
}

// pings are how many a plugin may leave without an answer.
const pings = 3

// watch asks for signs of life. It counts its own turns: a rank that was stopped, or gets no
// processor, blames the plugin for none of that.
func (p *process) watch() {
	tick := time.NewTicker(p.health / pings)
	defer tick.Stop()
	ping := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, wire.Ping), 0)
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			if p.asked.Add(1) > pings {
				p.end(fmt.Errorf("the plugin has not answered for %v (health_timeout)", p.health))
				return
			}
			_ = p.ctl.SetWriteDeadline(time.Now().Add(p.health))
			_, _ = p.ctl.Write(ping) // listen finds out that it is gone
		}
	}
}

// end ends the plugin, and has Poll find out. The reason is there before the end is: listen
// has another one for that.
func (p *process) end(why error) {
	p.mu.Lock()
	if p.ends == nil {
		p.ends = why
		p.over.Store(true)
	}
	p.mu.Unlock()
	p.kill()
	p.bell()
}

// ended says how the plugin has ended; nil: it runs.
func (p *process) ended() error {
	if !p.over.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends
}

func (p *process) kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
	}
}

// status waits for the process, and says how it ended.
func (p *process) status() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return errors.New("it was never started")
	}
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Wait() // the state tells
	}
	return errors.New(p.cmd.ProcessState.String())
}

// goodbye is how long a plugin that was asked to end may take; what it has printed until then
// is read for as long as printed, since a process of its own may hold its output open.
const (
	goodbye = 5 * time.Second
	printed = 100 * time.Millisecond
)

// close ends the plugin in good order if it runs, and frees all.
func (p *process) close() {
	close(p.quit)
	if p.ended() == nil && p.ctl != nil {
		_ = p.ctl.SetWriteDeadline(time.Now().Add(goodbye)) // it may read nothing
		_, _ = p.ctl.Write(binary.LittleEndian.AppendUint32(nil, wire.End))
	}
	late := time.AfterFunc(goodbye, func() {
		p.log.Warn("the plugin has not ended as it was asked to, and is killed", "after", goodbye)
		p.kill()
	})
	_ = p.status()
	late.Stop()
	if p.ctl != nil {
		_ = p.ctl.SetReadDeadline(time.Unix(1, 0))
	}
	if p.output != nil {
		_ = p.output.SetReadDeadline(time.Now().Add(printed))
	}
	p.done.Wait()
	p.free()
}

func (p *process) free() {
	if p.ctl != nil {
		p.ctl.Close()
	}
	if p.mem != nil {
		_ = unix.Munmap(p.mem)
	}
	if p.thread != nil {
		p.thread.Close()
	}
}

// What a plugin prints becomes log lines, so many a second of so many bytes.
const (
	linesPerSecond = 100
	lineLimit      = 1000
)

func lines(r io.Reader, log *slog.Logger) {
	b := bufio.NewReaderSize(r, lineLimit)
	second, n := time.Now(), 0
	for {
		line, _, err := b.ReadLine()
		if err != nil {
			return
		}
		if time.Since(second) > time.Second {
			if n > linesPerSecond {
				log.Warn("the plugin prints too much", "lines", n, "shown", linesPerSecond)
			}
			second, n = time.Now(), 0
		}
		if n++; n <= linesPerSecond {
			log.Info(string(line))
		}
	}
}

// above returns a copy of a descriptor, with a number that is not below least.
func above(fd, least int) (*os.File, error) {
	c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, least)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(c), "copy"), nil
}
