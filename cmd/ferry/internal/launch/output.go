package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// MaxLine is the longest line that passes through the launcher in one piece, in
// bytes. A rank that writes without line ends can't make the launcher grow.
const MaxLine = 64 << 10

// drainGrace is how long output is awaited after a rank has ended: a descendant
// that left the rank's process group may hold the pipe open.
const drainGrace = time.Second

// A pump carries one stream of one rank to its destination, line by line.
type pump struct {
	r, w   *os.File
	prefix string
	out    *lines
	done   chan struct{}
}

// lines is a destination that several pumps share: each Write is whole lines.
type lines struct {
	mu  *sync.Mutex // stdout and stderr may be one terminal: one lock for both
	w   io.Writer
	err error
	// broken is called once, when writing failed.
	broken func(error)
}

func (l *lines) write(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if _, l.err = l.w.Write(b); l.err != nil {
		l.broken(l.err)
	}
}

// newPump makes a pipe; its end w is for the rank.
func newPump(prefix string, out *lines) (*pump, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	return &pump{r: r, w: w, prefix: prefix, out: out, done: make(chan struct{})}, nil
}

// start reads until the last writer is gone. The caller has closed w.
func (p *pump) start() {
	go func() {
		defer close(p.done)
		defer p.r.Close()
		br := bufio.NewReaderSize(p.r, MaxLine)
		for {
			line, err := br.ReadSlice('\n')
			if len(line) > 0 {
				p.out.write(p.format(line))
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
}

// format adds the prefix, and a line end where the rank gave none: a line that
// was cut, or the last one.
func (p *pump) format(line []byte) []byte {
	b := make([]byte, 0, len(p.prefix)+len(line)+1)
	b = append(b, p.prefix...)
	b = append(b, line...)
	if b[len(b)-1] != '\n' {
		b = append(b, '\n')
	}
	return b
}

// expire gives the stream drainGrace to end by itself; the rank has ended. The
// channel done then closes.
func (p *pump) expire() {
	// It fails only when the pump has closed the pipe already.
	_ = p.r.SetReadDeadline(time.Now().Add(drainGrace))
}

// discard is for a pump whose rank never started.
func (p *pump) discard() {
	p.w.Close()
	p.r.Close()
}
