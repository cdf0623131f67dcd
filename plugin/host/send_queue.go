package host

import (
	"github.com/ferrympi/ferry/btl/ring"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// sendQueue sends messages to a plugin through its ring, in the order of the calls. It is used only
// while the memory of the plugin is mapped.
type sendQueue struct {
	producer   *ring.Producer
	pluginBell progress.RemoteBell
	// Messages without room in the ring.
	waitingMessages [][]byte
}

// send sends a message, or queues it. It reports whether the message is sent.
func (q *sendQueue) send(kind, path uint32, body []byte) bool {
	if len(q.waitingMessages) == 0 {
		if b := q.producer.Reserve(wire.Prefix + len(body)); b != nil {
			wire.Put(b, kind, path)
			q.commit(wire.Prefix + copy(b[wire.Prefix:], body))
			return true
		}
	}
	b := make([]byte, wire.Prefix, wire.Prefix+len(body))
	wire.Put(b, kind, path)
	q.waitingMessages = append(q.waitingMessages, append(b, body...))
	q.producer.Wait(len(q.waitingMessages[0]))
	return false
}

// sendFrame sends a frame in two parts if there is room in the ring.
func (q *sendQueue) sendFrame(path uint32, head, tail []byte) bool {
	if len(q.waitingMessages) > 0 {
		return false
	}
	n := wire.Prefix + len(head) + len(tail)
	b := wire.Reserve(q.producer, n)
	if b == nil {
		return false
	}
	wire.Put(b, wire.Frame, path)
	copy(b[wire.Prefix:], head)
	cpu.CopyShared(b[wire.Prefix+len(head):], tail)
	q.commit(n)
	return true
}

// commit publishes the reserved message of n bytes.
func (q *sendQueue) commit(n int) {
	q.producer.Commit(n)
	q.pluginBell.Ring()
}

// flush sends queued messages. The number of its polls is bounded for any contents of the ring's header.
func (q *sendQueue) flush() (n int) {
	for range messagesPerPoll {
		if len(q.waitingMessages) == 0 {
			break
		}
		b := wire.Reserve(q.producer, len(q.waitingMessages[0]))
		if b == nil {
			if !q.producer.Wait(len(q.waitingMessages[0])) {
				n++ // There is room now.
				continue
			}
			break
		}
		q.commit(copy(b, q.waitingMessages[0]))
		q.waitingMessages = q.waitingMessages[1:]
		n++
	}
	return n
}
