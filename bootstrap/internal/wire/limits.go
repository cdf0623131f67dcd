package wire

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// limitedBody is a body with limits, which Encode and Decode check.
type limitedBody interface{ check() error }

func (b ValuedBody) check() error     { return CheckSizes(b.Name, b.Value, bootstrap.MaxValue) }
func (b JoinBody) check() error       { return CheckSizes(b.Tag, b.Payload, MaxJoin) }
func (b GetBody) check() error        { return CheckSizes(b.Key, nil, 0) }
func (b NameBody) check() error       { return CheckSizes(b.Name, nil, 0) }
func (b DisconnectBody) check() error { return CheckSizes(b.Reason, nil, 0) }
func (b NoteBody) check() error       { return CheckSizes("", b.Body, bootstrap.MaxPayload) }
func (b LookupBody) check() error     { return CheckSizes(b.Name, nil, 0) }
func (b RelayBody) check() error      { return CheckSizes(b.Tag, b.Payload, MaxJoin) }
func (b ReplicateBody) check() error  { return CheckSizes(b.Name, b.Value, bootstrap.MaxValue) }

func (b EntryBody) check() error { return CheckSizes("", b.Entry, maxEntry) }

func (b ReportCommEventBody) check() error {
	if len(b.Ranks) > MaxElements {
		return fmt.Errorf("a group of %d members is over the limit of %d: %w", len(b.Ranks), MaxElements, framework.ErrUnsupported)
	}
	return cmp.Or(checkCommEvent(b.Kind), CheckSizes(b.Reason, nil, 0))
}

func (b CommEventBody) check() error {
	if len(b.Members) > MaxElements {
		return fmt.Errorf("a group of %d runs is over the limit of %d: %w", len(b.Members), MaxElements, framework.ErrUnsupported)
	}
	return cmp.Or(checkCommEvent(b.Event.Kind), CheckSizes(b.Event.Reason, nil, 0))
}

// checkCommEvent refuses kinds of events that do not concern a communicator.
func checkCommEvent(kind uint8) error {
	if k := bootstrap.EventKind(kind); k != bootstrap.CommBroken && k != bootstrap.CommRevoked {
		return fmt.Errorf("event kind %d of a communicator", kind)
	}
	return nil
}

// maxEntry limits an entry in a message. The limit of bootstrap/mesh is lower.
const maxEntry = 4 << 10

// MaxJoin limits the payload of a join with the entry that bootstrap/mesh puts before it.
const MaxJoin = bootstrap.MaxPayload + maxEntry

func check(body any) error {
	if b, ok := body.(limitedBody); ok {
		return b.check()
	}
	return nil
}

// TruncateReason shortens a reason to bootstrap.MaxName bytes.
func TruncateReason(reason string) string {
	if len(reason) <= bootstrap.MaxName {
		return reason
	}
	return strings.ToValidUTF8(reason[:bootstrap.MaxName], "")
}

// CheckSizes returns ErrUnsupported for a name over bootstrap.MaxName bytes or a value over most
// bytes.
func CheckSizes(name string, value []byte, most int) error {
	if len(name) > bootstrap.MaxName {
		return fmt.Errorf("a name of %d bytes is over the limit of %d: %w", len(name), bootstrap.MaxName, framework.ErrUnsupported)
	}
	if len(value) > most {
		return fmt.Errorf("a value of %d bytes is over the limit of %d: %w", len(value), most, framework.ErrUnsupported)
	}
	return nil
}
