package mesh

import (
	"net"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// deadlineRecorder records the deadlines of the writes on a connection.
type deadlineRecorder struct {
	net.Conn
	deadline time.Time
	writes   []time.Time
}

func (l *deadlineRecorder) SetWriteDeadline(at time.Time) error {
	l.deadline = at
	return nil
}

func (l *deadlineRecorder) Write(b []byte) (int, error) {
	l.writes = append(l.writes, l.deadline)
	return len(b), nil
}

// A process in a debugger is alive. The last write before the end of the link has a deadline.
func TestLink_PeerIsStopped_WritesHaveNoTimeLimit(t *testing.T) {
	c := newTestJob(t, unix, 2).open(0)
	near, far := net.Pipe()
	defer far.Close()
	conn := &deadlineRecorder{Conn: near}
	l := &link{client: c, rank: 1, conn: conn, pendingRequests: map[uint64]join.Withdraw{}, writerDone: make(chan struct{})}
	l.send(encodeFrame(wire.Goodbye, 0, wire.Empty{}))
	l.write()
	l.writerDone = make(chan struct{})
	l.sendLast(encodeFrame(wire.Goodbye, 0, wire.Empty{}))
	l.write()
	if len(conn.writes) != 2 || !conn.writes[0].IsZero() || conn.writes[1].IsZero() {
		t.Errorf("deadlines %v, want none and one", conn.writes)
	}
}
