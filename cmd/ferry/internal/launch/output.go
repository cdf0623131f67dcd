package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/outfile"
)

// The output of a rank takes this path:
//
//	rank -> pipe or pseudo-terminal -> outlet -> stream -> sink -> the user's file, pipe or terminal
//
// An outlet is one goroutine. It alone ends its stream, at the end of the pipe. A sink is
// shared by ranks, and may block as long as its reader pauses; then its outlets block, and
// the ranks block in their writes. The supervisor waits for outlets, and never writes.

// MaxLine is the length in bytes of the longest line that the launcher writes at once. It bounds
// the memory per rank.
const MaxLine = 64 << 10

// A sink is a destination of output, shared by the streams that lead to it.
type sink struct {
	w         io.Writer
	ownedFile *os.File // w if the launcher opened it, and closes it; else nil

	// Of the last stream with output; nil if that has no tail.
	lastWriter atomic.Pointer[tail]

	// Held during writes.
	mu sync.Mutex
	// Later output is discarded.
	firstErr error
	// onError is called once, with mu held, and must not block.
	onError func(error)
}

// write writes b. After a failure, it discards b.
func (k *sink) write(b []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.firstErr == nil && len(b) > 0 {
		k.check(WriteAll(k.w, b))
	}
}

// finish closes the sink's file. Network file systems and quotas report some failed writes
// at close only, so that a file of the caller's is checked by closing a duplicate.
func (k *sink) finish() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ownedFile != nil {
		err := k.ownedFile.Close()
		if k.firstErr == nil {
			k.check(err)
		}
	} else if f, ok := k.w.(*os.File); ok && k.firstErr == nil {
		k.check(closeDuplicate(f))
	}
}

func (k *sink) check(err error) {
	if err != nil {
		k.firstErr = err
		k.onError(err)
	}
}

// WriteAll writes b to w. It waits where w is a descriptor in non-blocking mode: any process
// that shares an open file can set O_NONBLOCK on it.
func WriteAll(w io.Writer, b []byte) error {
	for {
		n, err := w.Write(b)
		f, isFile := w.(*os.File)
		if !isFile || !errors.Is(err, unix.EAGAIN) {
			return err
		}
		b = b[n:]
		_, err = ioctl(f, func(fd int) (int, error) {
			return unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		})
		if err != nil && !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "poll", Path: f.Name(), Err: err}
		}
	}
}

// closeDuplicate returns the error that closing f would report, and leaves f open.
func closeDuplicate(f *os.File) error {
	_, err := ioctl(f, func(fd int) (int, error) {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return 0, nil // The check is skipped without a free descriptor.
		}
		return 0, unix.Close(dup)
	})
	if err != nil {
		return &os.PathError{Op: "close", Path: f.Name(), Err: err}
	}
	return nil
}

// A stream turns the output of a rank into writes to a sink. It belongs to one outlet.
type stream struct {
	sink *sink
	// May be empty.
	linePrefix string
	// holdsLines withholds the last part of a line until its end, because another rank
	// writes to the sink as well, or because the sink is not a file.
	holdsLines bool
	// Receives a copy; may be nil.
	tail *tail

	// With the prefix.
	unwrittenLine []byte
}

// add takes output of the rank. It never fails, because a rank may continue when its output is lost.
func (s *stream) add(b []byte) {
	if len(b) > 0 {
		s.sink.lastWriter.Store(s.tail)
	}
	if s.tail != nil {
		s.tail.add(b)
	}
	switch {
	case s.linePrefix != "":
		s.addTagged(b)
	case s.holdsLines:
		s.addLines(b)
	default:
		s.sink.write(b)
	}
}

// addTagged writes each complete line with the prefix.
func (s *stream) addTagged(b []byte) {
	for len(b) > 0 {
		if len(s.unwrittenLine) == 0 {
			s.unwrittenLine = append(s.unwrittenLine, s.linePrefix...)
		}
		n := min(len(b), MaxLine-(len(s.unwrittenLine)-len(s.linePrefix)))
		end := bytes.IndexByte(b[:n], '\n')
		if end >= 0 {
			n = end + 1
		}
		s.unwrittenLine, b = append(s.unwrittenLine, b[:n]...), b[n:]
		if end >= 0 || len(s.unwrittenLine)-len(s.linePrefix) == MaxLine {
			s.flush()
		}
	}
}

// addLines writes all complete lines in one piece.
func (s *stream) addLines(b []byte) {
	complete := bytes.LastIndexByte(b, '\n') + 1
	s.unwrittenLine = append(s.unwrittenLine, b[:complete]...)
	if complete > 0 {
		s.flush()
	}
	if s.unwrittenLine = append(s.unwrittenLine, b[complete:]...); len(s.unwrittenLine) >= MaxLine {
		s.flush()
	}
}

// flush writes the withheld bytes. A tagged line that lacks an end gets one.
func (s *stream) flush() {
	if len(s.unwrittenLine) == 0 {
		return
	}
	if s.linePrefix != "" && s.unwrittenLine[len(s.unwrittenLine)-1] != '\n' {
		s.unwrittenLine = append(s.unwrittenLine, '\n')
	}
	s.sink.write(s.unwrittenLine)
	s.unwrittenLine = s.unwrittenLine[:0]
}

// connectOutput sets the standard output and standard error of a rank that is not started
// yet. After an error the caller calls r.abort.
func (s *supervisor) connectOutput(r *rank) (err error) {
	stdout, stderr := s.output.stdout, s.output.stderr
	if s.job.OutputDir != "" {
		file, err := s.createOutputFile(r.rankNumber)
		if err != nil {
			return err
		}
		r.ownSink = &sink{w: file, ownedFile: file, onError: s.output.report}
		stdout, stderr = r.ownSink, r.ownSink
	}
	if stdout == stderr && s.sharesStream(r, stdout) {
		r.cmd.Stdout, err = s.connectStream(r, stdout, &r.tail)
		r.cmd.Stderr = r.cmd.Stdout
		return err
	}
	if r.cmd.Stdout, err = s.connectStream(r, stdout, nil); err == nil {
		r.cmd.Stderr, err = s.connectStream(r, stderr, &r.tail)
	}
	return err
}

// isInherited reports whether ranks get the descriptor of a sink itself.
func (s *supervisor) isInherited(k *sink) bool {
	return s.job.OutputDir == "" && !s.job.TagsLines && isDevice(k.w)
}

// sharesStream reports whether both streams of a rank with one sink share a pipe or
// pseudo-terminal. Then the order of the rank's writes is kept, and the tail has lines of both.
func (s *supervisor) sharesStream(r *rank, k *sink) bool {
	if s.isInherited(k) {
		f := k.w.(*os.File)
		return isTerminal(f) && stopsBackgroundWriters(f)
	}
	return s.isExclusive(r, k)
}

// isExclusive reports whether no other rank writes to a sink.
func (s *supervisor) isExclusive(r *rank, k *sink) bool { return k == r.ownSink || s.job.most() == 1 }

// connectStream returns the writer of a rank's output to a sink. last receives
// a copy, if it is not nil.
func (s *supervisor) connectStream(r *rank, k *sink, last *tail) (io.Writer, error) {
	switch {
	case k.w == nil:
		return nil, nil
	case !s.isInherited(k):
		return s.connectPipe(r, k, last)
	}
	device := k.w.(*os.File)
	if !isTerminal(device) || last == nil && !stopsBackgroundWriters(device) {
		return device, nil
	}
	far, near, err := newPTY(device)
	if err != nil {
		return device, nil // The tail stays empty.
	}
	r.outlets = append(r.outlets, newOutlet(far, &stream{sink: k, tail: last}))
	r.childEnds = append(r.childEnds, near)
	return near, nil
}

// connectPipe returns a pipe to a sink.
func (s *supervisor) connectPipe(r *rank, k *sink, last *tail) (io.Writer, error) {
	_, isFile := k.w.(*os.File)
	out := &stream{sink: k, tail: last, holdsLines: !isFile || !s.isExclusive(r, k)}
	if s.job.TagsLines {
		out.linePrefix = fmt.Sprintf("[%d] ", r.rankNumber)
	}
	far, near, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	r.outlets = append(r.outlets, newOutlet(far, out))
	r.childEnds = append(r.childEnds, near)
	return near, nil
}

// createOutputFile opens the file of a rank in OutputDir.
func (s *supervisor) createOutputFile(n int) (*os.File, error) {
	width := len(strconv.Itoa(s.job.most() - 1))
	return outfile.Create(filepath.Join(s.job.OutputDir, fmt.Sprintf("rank.%0*d", width, n)))
}

// isDevice reports whether w is a terminal, or /dev/null. Writes to other devices can fail.
func isDevice(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	isNull, _ := ioctl(f, func(fd int) (int, error) {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
			return 0, err
		}
		return 1, nil
	})
	return isNull == 1 || isTerminal(f)
}

func isTerminal(f *os.File) bool {
	_, err := ioctl(f, func(fd int) (int, error) {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		return 0, err
	})
	return err == nil
}

// isSameWriter reports whether a and b are one writer, or descriptors of one file.
func isSameWriter(a, b io.Writer) bool {
	fa, aIsFile := a.(*os.File)
	fb, bIsFile := b.(*os.File)
	if aIsFile && bIsFile {
		sa, errA := fa.Stat()
		sb, errB := fb.Stat()
		return errA == nil && errB == nil && os.SameFile(sa, sb)
	}
	defer func() { _ = recover() }() // Dynamic types that can't be compared differ.
	return a == b
}
