// Package control connects a user's commands with a running job: `ferry ps` requests its status,
// and `ferry resize` a change of its processes.
//
// The launcher serves a Unix socket named control, with mode 0600, in the job's directory. Both
// ends refuse another user before they exchange data (SO_PEERCRED). There is no token. In a file of mode 0600,
// a token would prove the user only, as SO_PEERCRED does.
//
// A connection carries one request and one reply. Each is a JSON object in one line, with the
// version of the protocol. Names of process sets are base64, since they are arbitrary bytes. A
// client that closes its sending side, or ends, withdraws its change while that is not integrated.
//
// Input is untrusted. Lines have a limit, objects have no unknown fields, connections have
// deadlines, and their number is bounded. A malformed request ends its connection, and is logged in
// one line. The job is not affected.
package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Name is the name of the socket in the job's directory.
const Name = "control"

// Version is the version of the protocol, which both ends must share.
const Version = 1

const (
	maxRequest = 64 << 10 // Bytes of a line.
	maxReply   = 1 << 20  // Bytes of a line.

	// MaxChanges is the largest number of changes in a Status.
	MaxChanges = 64

	maxConns       = 64              // Connections at a time.
	requestTimeout = 5 * time.Second // For a request to arrive.
	replyTimeout   = time.Second     // For a reply to be accepted by the kernel.
)

// Status is the state of a job.
type Status struct {
	// Command line of the programs, with the arguments.
	Program string `json:"program"`
	// Number of ranks, with those of changes in progress.
	Ranks int `json:"ranks"`
	// Largest number of ranks (--max-ranks).
	Limit int `json:"limit"`
	// The job refuses changes.
	IsEnding bool `json:"ending"`
	// In progress, the oldest first, at most MaxChanges.
	Changes []Change `json:"changes"`
}

// Change is a change in progress.
type Change struct {
	// "add", "sub" or "replace".
	Type string `json:"type"`
	// The changing set. Bytes that are not UTF-8 are replaced.
	Pset string `json:"pset"`
	// Number of ranks that join.
	Add int `json:"add"`
	// Number of ranks that leave.
	Sub int `json:"sub"`
	// "starting" while ranks are being started, "integrating" then.
	State string `json:"state"`
	// Number of ranks that integrate the change.
	Members int `json:"members"`
	// Number of those that have called Integrate.
	Integrated int `json:"integrated"`
	// "user" or "rank N".
	Requester string `json:"requester"`
}

// Op is the operation of a Resize.
type Op string

// The operations.
const (
	Add     Op = "add"     // N ranks join.
	Sub     Op = "sub"     // N ranks leave; 0: those that have ended.
	Replace Op = "replace" // N ranks leave and as many join.
)

// Resize requests a change of a process set, or of the set that finished changes have made of it.
type Resize struct {
	Op      Op     `json:"op"`
	N       int    `json:"n"`
	Pset    []byte `json:"pset"` // Name of the set.
	Partial bool   `json:"partial,omitempty"`
	// In nanoseconds. A change that is not integrated by then is withdrawn.
	Wait time.Duration `json:"wait"`
}

// check refuses an invalid request.
func (r *Resize) check() error {
	switch {
	case r.Op != Add && r.Op != Sub && r.Op != Replace:
		return fmt.Errorf("operation %.20q: want %s, %s or %s", r.Op, Add, Sub, Replace)
	case r.N < 0 || r.N == 0 && r.Op != Sub:
		return fmt.Errorf("%s of %d ranks: want at least 1", r.Op, r.N)
	case r.Wait <= 0:
		return fmt.Errorf("wait of %v: want a time above 0", r.Wait)
	}
	return nil
}

// Resized is a finished change.
type Resized struct {
	// Name of the new set.
	Pset []byte `json:"pset"`
	// Its size. 0: the program has deleted it.
	Ranks   int `json:"ranks"`
	Added   int `json:"added"`
	Removed int `json:"removed"`
}

// request is a line of a client. Without Resize it requests the status.
type request struct {
	Version int     `json:"version"`
	Resize  *Resize `json:"resize,omitempty"`
}

// reply is the line of a job. Exactly one of the fields besides Version is set.
type reply struct {
	Version int      `json:"version"`
	Error   string   `json:"error,omitempty"`
	Status  *Status  `json:"status,omitempty"`
	Resized *Resized `json:"resized,omitempty"`
}

// decodeRequest decodes a line of a client.
func decodeRequest(line []byte) (request, error) {
	var r request
	err := decode(line, &r)
	if err == nil && r.Resize != nil {
		err = r.Resize.check()
	}
	return r, err
}

// decodeReply decodes the line of a job. An error of the job is an error.
func decodeReply(line []byte) (reply, error) {
	var r reply
	err := decode(line, &r)
	if err == nil && r.Error != "" {
		err = refusal(r.Error)
	}
	return r, err
}

// refusal is an error that the job has sent.
type refusal string

func (r refusal) Error() string { return string(r) }

// decode decodes one object of this version.
func decode(line []byte, v any) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("malformed line: %w", err)
	}
	if head.Version != Version {
		return fmt.Errorf("protocol version %d, want %d: use the ferry that runs the job", head.Version, Version)
	}
	strict := json.NewDecoder(bytes.NewReader(line))
	strict.DisallowUnknownFields()
	if err := strict.Decode(v); err != nil {
		return fmt.Errorf("malformed line: %w", err)
	}
	return nil
}

// encode returns the line of a message.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}
