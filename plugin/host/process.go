package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// process is a running plugin with either control protocol. Paths belong to the module.
type process struct {
	offer         wire.Offer
	sharedMemory  []byte
	ringCells     int
	healthTimeout time.Duration
	ringPoller    func() // Rings the poller of the module

	child   *child
	control control
	output  *output
	quit    chan struct{}
	done    sync.WaitGroup

	// Messages in the ring to the rank, reported by the plugin.
	publishedCount  atomic.Uint64
	unansweredPings atomic.Int32 // Pings since the last reply

	mu sync.Mutex
	// Reason of the end, nil while it runs.
	endReason error
	// endReason is set.
	hasEnded atomic.Bool
}

// start starts the plugin, and blocks until it has described its transport. The plugin writes to the eventfd wake to wake this process. The error
// wraps errRefused if the file must not be executed because of its owner, mode or contents.
func (c component) start(ctx context.Context, env btl.Env, params *params, wake int) (*process, error) {
	file, err := c.open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	defer file.Close()
	p := &process{ringCells: params.RingCells, healthTimeout: params.HealthTimeout, ringPoller: env.Bell().Ring, quit: make(chan struct{}), output: &output{logger: c.logger(env)}}
	memory, err := p.share()
	if err != nil {
		p.unmap()
		return nil, err
	}
	defer memory.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		p.unmap()
		return nil, err
	}
	defer theirs.Close()
	l := &launch{component: c, params: params, jobDir: env.Identity.JobDir, rankSocket: ours, output: p.output}
	free, err := l.prepare(file, theirs, memory, wake)
	if err != nil {
		ours.Close()
		p.unmap()
		return nil, err
	}
	defer free()
	timed, cancel := context.WithTimeoutCause(ctx, params.StartTimeout, fmt.Errorf("the plugin has not answered within %v (start_timeout)", params.StartTimeout))
	defer cancel()
	p.control, p.child, err = l.start(timed)
	theirs.Close() // The rank notices the end of the plugin by the close of the last copy.
	if err == nil {
		p.offer, err = p.control.open(timed, startOf(env))
	}
	if err == nil {
		err = p.checkOffer()
	}
	if err != nil {
		err, hasReason := p.startError(timed, err)
		p.close()
		if line := p.output.lastLine; line != "" && !hasReason {
			err = fmt.Errorf("%w; last line of output: %.200q", err, line)
		}
		return nil, err
	}
	p.done.Go(p.listen)
	p.done.Go(p.watch)
	return p, nil
}

// serveHint is the remedy for a plugin that does not answer over go-plugin.
const serveHint = "a Go plugin calls plugin.Serve, and one that speaks docs/plugin-protocol.md has protocol: ferry in its entry"

// startError kills the plugin after a failed start, and returns the cause. hasReason is false if the plugin has not reported one.
func (p *process) startError(ctx context.Context, err error) (cause error, hasReason bool) {
	if p.child != nil {
		if ctx.Err() == nil {
			p.child.exitsWithin(outputGrace) // Then it has a status.
		}
		p.child.kill()
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, errNoFirstLine):
		err = fmt.Errorf("%w; %s", context.Cause(ctx), serveHint)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case p.child == nil:
		hasReason = true
	case errors.Is(err, errChannelEnded), errors.Is(err, errNoHandshake) && !p.child.wasKilled():
		err = fmt.Errorf("the plugin exited before it replied: %s; %s", p.child.status(), serveHint)
	default:
		hasReason = true
	}
	p.terminate(err)
	return err, hasReason
}

// prepare creates the command. It executes the checked file by its descriptor, which stays open for the interpreter of a script. free closes copies
// after the start.
func (l *launch) prepare(program, socket, memory *os.File, wake int) (free func(), err error) {
	waker, err := duplicate(wake)
	if err != nil {
		return nil, err
	}
	// The child closes the numbers without a file.
	inherited := make([]*os.File, max(lastInheritable(), wire.ProgramFD)-wire.ControlFD+1)
	copy(inherited, []*os.File{socket, memory, waker, program})
	l.cmd = &exec.Cmd{Path: "/proc/self/fd/" + strconv.Itoa(wire.ProgramFD), Args: l.component.Command, Env: l.component.environ(), ExtraFiles: inherited}
	return func() { waker.Close() }, nil
}

// lastInheritable returns the highest descriptor of this process without close-on-exec. Libraries in C and the parent process may have left it open.
// Children must not inherit it.
func lastInheritable() (last int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			last = fd
		}
	}
	return last
}

// share creates the shared memory.
func (p *process) share() (*os.File, error) {
	fd, err := unix.MemfdCreate("ferry-plugin", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory for a plugin: %w", err)
	}
	memory := os.NewFile(uintptr(fd), "memory")
	size := wire.Size(p.ringCells)
	// Pages are allocated at first use, without the limit of a file system.
	if err = unix.Ftruncate(fd, int64(size)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		p.sharedMemory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		memory.Close()
		return nil, fmt.Errorf("memory for a plugin: %w", err)
	}
	wire.Layout(p.sharedMemory, p.ringCells)
	wire.Populate(p.sharedMemory, p.ringCells)
	return memory, nil
}

// socketPair creates the control socket. Reads from ours have deadlines.
func socketPair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket of a plugin: %w", err)
	}
	_ = unix.SetNonblock(pair[0], true)
	return os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "plugin"), nil
}

// environ returns the environment of the plugin. It has the variables of the entry, and no secret of the job.
func (c component) environ() (env []string) {
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TMPDIR"}, c.Env...) {
		if strings.Contains(name, "=") {
			env = append(env, name)
		} else if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// startOf returns the parameters of a transport's start.
func startOf(env btl.Env) wire.Start {
	id := env.Identity
	return wire.Start{
		Version: wire.Version, Nonce: env.Self.Nonce, Rank: id.Proc.Rank, Size: uint32(max(id.MaxSize, id.Size)),
		LocalRank: uint32(id.LocalRank), LocalSize: uint32(id.MaxLocal()), Namespace: id.Proc.Namespace, Node: env.Node, Dir: id.JobDir,
	}
}

// checkOffer checks the plugin's description of its transport.
func (p *process) checkOffer() error {
	o := p.offer
	limits := int(o.Frame) < btl.MinFrameLimit || int(o.Frame) > wire.FrameLimit(p.ringCells) || o.Eager < 1 || o.Eager > o.Frame
	if limits || o.Latency == 0 || o.Device == "" || o.Reaches == 0 || o.Reaches > wire.ReachesSelf|wire.ReachesOthers {
		return fmt.Errorf("invalid description of the plugin's transport: %+v", o)
	}
	return nil
}

// listen handles the replies to pings, and detects the end of the plugin.
func (p *process) listen() {
	err := p.control.serve(func(published uint64) {
		p.unansweredPings.Store(0)
		if p.publishedCount.Swap(published) != published {
			p.ringPoller()
		}
	})
	select {
	case <-p.quit:
		return
	default:
	}
	if errors.Is(err, errChannelEnded) && p.child.exitsWithin(outputGrace) {
		err = fmt.Errorf("the plugin exited: %s", p.child.status())
	}
	p.terminate(err)
}

// maxUnanswered is the number of unanswered pings after which a plugin counts as hung.
const maxUnanswered = 3

// watch sends pings, and counts those without a reply. A time without processor for the rank is therefore not attributed to the plugin.
func (p *process) watch() {
	tick := time.NewTicker(p.healthTimeout / maxUnanswered)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-tick.C:
			if p.unansweredPings.Add(1) > maxUnanswered {
				p.terminate(fmt.Errorf("no reply of the plugin for %v (health_timeout)", p.healthTimeout))
				return
			}
			p.control.ping()
		}
	}
}

// terminate kills the plugin, and wakes the poller. It keeps the first reason.
func (p *process) terminate(why error) {
	p.mu.Lock()
	if p.endReason == nil {
		p.endReason = why
		p.hasEnded.Store(true)
	}
	p.mu.Unlock()
	if p.child != nil {
		p.child.kill()
	}
	p.ringPoller()
}

// endError returns the reason of the plugin's end, or nil while it runs.
func (p *process) endError() error {
	if !p.hasEnded.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endReason
}

// stopGrace is the time limit for an orderly end of a plugin.
const stopGrace = 5 * time.Second

// close stops a running plugin in an orderly way, and frees all resources.
func (p *process) close() {
	close(p.quit)
	if p.child != nil {
		late := time.AfterFunc(stopGrace, func() {
			p.output.logger.Warn("the plugin has not stopped on request and is killed", "after", stopGrace)
			p.child.kill()
		})
		if p.endError() == nil {
			p.control.stop()
		}
		<-p.child.exited
		late.Stop()
	}
	if p.control != nil {
		p.control.close()
	}
	p.done.Wait()
	p.output.openStreams.Wait()
	p.unmap()
}

func (p *process) unmap() {
	if p.sharedMemory != nil {
		_ = unix.Munmap(p.sharedMemory)
	}
}

// duplicate returns a copy of a descriptor.
func duplicate(fd int) (*os.File, error) {
	c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(c), "copy"), nil
}
