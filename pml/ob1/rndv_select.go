package ob1

import (
	"fmt"
	"math/bits"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Kinds of large messages, and the state of the selector for each of them.

// messageKind is the kind of a large message. Measured times of a kind select the protocol of
// its later messages.
type messageKind struct {
	memory  btl.Memory
	pattern pattern
	class   uint8
}

// pattern is which other large messages between the two processes are in flight.
type pattern uint8

const (
	// single is a message without others in flight.
	single pattern = iota
	// windowed is one of several from the same process.
	windowed
	// sentPatterns is the number of patterns that an RTS distinguishes. The receiver adds the others.
	sentPatterns

	// crossing is a single message that crosses one of this process.
	crossing = sentPatterns
	// duplex is a message of a window that crosses messages of this process.
	duplex   = crossing + 1
	patterns = duplex + 1
)

const (
	// minClassLog is the binary logarithm of the size above which messages of the lowest class
	// are. A choice of protocols does not pay for smaller messages, and most of them are eager.
	minClassLog = 14
	classes     = 14
)

// classOf returns the size class of a message, in powers of two.
func classOf(size int64) uint8 {
	return uint8(min(max(bits.Len64(uint64(size-1))-1-minClassLog, 0), classes-1))
}

// selection is the selector of one kind of message.
type selection struct {
	selector.GroupSelector
	costSharing
	kind messageKind
	// planned are the protocols of the next message and of the one behind it. The answer to the
	// former already advises whether the latter should carry a fragment.
	planned      [2]selector.Protocol
	plannedCount int
}

// selections has an entry for each kind of message that was received.
type selections [btl.Memories][patterns][classes]*selection

// allSelections returns in.selections, which it allocates at the first use.
func (in *largeReceives) allSelections() *selections {
	if in.selections == nil {
		in.selections = new(selections)
	}
	return in.selections
}

// minGroup is the smallest number of messages of a duplex window that are measured together.
// Each process packs a few messages and unpacks a few, so that a single time shows little.
const minGroup = 8

// pipelines are the variants of the pipeline that differ on this processor.
var pipelines = func() selector.Set {
	if cpu.Streams {
		return selector.AnyPipeline
	}
	return selector.AnyPipeline &^ selector.Of(selector.PipelineNT)
}()

// plan selects the protocols of the next messages from p, and replaces planned ones that are not
// possible.
func (s *selection) plan(p *proc, possible selector.Set) {
	for i, protocol := range s.planned {
		if i < s.plannedCount && possible.Has(protocol) {
			continue
		}
		protocol = s.selectProtocol(p, possible)
		if p.m.protocolParam == randomProtocols {
			protocol = p.m.randomProtocol(possible)
		}
		s.planned[i] = protocol
	}
	s.plannedCount = len(s.planned)
}

// planReceive determines the kind and the possible protocols of a message. It returns an
// error if the message must be copied between the processes, and cannot be.
func (p *proc) planReceive(r *request) error {
	x := r.rndv
	t := p.inTransport
	forced := t.copier.Forced(x.remote, x.bytesWanted)
	var possible selector.Set
	if r.buf.Layout() == nil {
		if err := t.reader.CanRead(p.Incarnation, x.remote, x.bytesWanted); err == nil {
			possible |= selector.Of(selector.Get)
		} else if forced != nil {
			return fmt.Errorf("%w; %w", err, forced)
		}
		if p.incoming.canPut {
			possible |= selector.Of(selector.Put)
			if possible.Has(selector.Get) {
				possible |= selector.Of(selector.Split)
			}
		}
	}
	if possible == 0 || forced == nil {
		possible |= pipelines
	}
	k, canGet := messageKind{t.copier.KindOf(x.remote), x.pattern, classOf(x.bytesWanted)}, possible.Has(selector.Get)
	allowed := p.m.allowedProtocols
	if x.pattern >= sentPatterns && allowed == selector.All && p.m.protocolParam != randomProtocols {
		// Both processes copy at the same time, so neither gains by the other's help. Yet each
		// receiver on its own would select it.
		allowed = selector.AnyPipeline | selector.Of(selector.Get)
		if k.memory == btl.Allocated && possible.Has(selector.Get) {
			// The receiver's part of a pipeline is the shorter one of two copies, so each receiver
			// on its own would select it.
			allowed = selector.Of(selector.Get)
		} else if advised, ok := p.advisedProtocol(k); ok && possible.Has(advised) {
			allowed = selector.Of(advised)
		}
	}
	if only := possible & allowed; only != 0 {
		possible = only
	}
	x.selection, x.possible = p.selectionOf(k, canGet), possible
	return nil
}

// selectionOf returns the selection of a kind, which it creates at the first use. canGet
// reports whether get is possible.
func (p *proc) selectionOf(k messageKind, canGet bool) *selection {
	at := &p.incoming.allSelections()[k.memory][k.pattern][k.class]
	if *at == nil {
		*at = p.newSelection(k, canGet)
	}
	return *at
}

// newSelection returns a selection. It starts with published costs, or with results of a
// neighboring class.
func (p *proc) newSelection(k messageKind, canGet bool) *selection {
	guess := selector.PipelineFull
	if k.memory == btl.Allocated || p.m.engine.IsOversubscribed() {
		guess = selector.Get
	}
	s := &selection{kind: k}
	switch k.pattern {
	case duplex:
		// A change of the protocol takes effect behind the messages accepted ahead.
		s.GroupSelector = selector.NewGroup(max(maxAhead>>(k.class+1+minClassLog), minGroup), guess)
		if canGet {
			s.Penalize(selector.Of(selector.Pipeline, selector.PipelineNT))
		}
	case windowed:
		s.Selector = selector.NewWindow(guess)
		s.Penalize(selector.Of(selector.Pipeline))
	default:
		s.Selector = selector.New(guess)
	}
	n := p.nodeCosts()
	if n.NodeTable != nil && s.adopt(p, n) {
		return s
	}
	neighbors := &p.incoming.allSelections()[k.memory][k.pattern]
	if k.class > 0 && s.inherit(p, n, neighbors[k.class-1]) {
		return s
	}
	if k.class < classes-1 {
		s.inherit(p, n, neighbors[k.class+1])
	}
	return s
}

// startProtocol starts a matched message by its protocol. Lock held.
func (r *request) startProtocol() {
	x := r.rndv
	switch x.protocol {
	case selector.Get:
		r.startTransfer(&x.get)
	case selector.Put:
		r.startTransfer(putReceive{&x.shared})
	case selector.Split:
		r.startTransfer(splitReceive{&x.shared})
	default:
		r.startTransfer(pipelineReceive{})
	}
}
