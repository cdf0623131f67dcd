package mesh

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	sys "golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A Spawner is a Launcher that can start processes (framework.As). They join the namespace of the
// job. Only the Launcher uses their identity at the launcher, which may have another namespace or
// key space.
type Spawner interface {
	// Spawn starts all processes of s or none. It returns once the launcher has accepted or refused
	// them, and does not wait until they run. The error quotes the launcher. It is ErrUnsupported,
	// before anything is sent, for a hand-over, a program or arguments beyond the launcher's limits,
	// and for a launcher without the ability. After an error for which processes may still
	// start, they are refused when they come.
	Spawn(ctx context.Context, s SpawnRequest) error
}

// A SpawnRequest describes processes to start.
type SpawnRequest struct {
	// Number of processes, at least 1.
	N int
	// Program, its arguments without the program's name, and its working directory.
	Program string
	Args    []string
	Dir     string
	// Additional environment, as name=value. A launcher that passes none ignores it.
	Env []string
	// Encoding of the HandOver of the spawned processes. It has a key, so only they may read it.
	HandOver []byte
}

// CheckProgram returns an error for a request without processes, or with a program or a directory
// that is not an absolute path of this node. Launchers end the job for some of these.
func (s SpawnRequest) CheckProgram() error {
	if s.N < 1 {
		return fmt.Errorf("%d processes, and at least 1 is needed", s.N)
	}
	if info, err := os.Stat(s.Program); !filepath.IsAbs(s.Program) || err != nil || !info.Mode().IsRegular() || sys.Access(s.Program, sys.X_OK) != nil {
		return fmt.Errorf("the program %q is not an executable file with an absolute path", s.Program)
	}
	if info, err := os.Stat(s.Dir); !filepath.IsAbs(s.Dir) || err != nil || !info.IsDir() {
		return fmt.Errorf("the directory %q is not a directory with an absolute path", s.Dir)
	}
	return nil
}

// An Added is the Launcher of a process that a Spawner may have started (framework.As). Its Identity
// is that in the job. It has the namespace, FirstRank and Size of the hand-over. The rank and
// LocalRanks are those at the launcher plus FirstRank.
type Added interface {
	// HandOver returns the hand-over of this process; ok is false in the first processes of a job.
	HandOver() (h HandOver, ok bool)
}

// A HandOver makes a spawned process part of a job.
type HandOver struct {
	// Namespace of the job.
	Namespace string
	// Rank of the first process of the spawn, and their number.
	FirstRank int
	Size      int
	// Identity.MaxSize of the job.
	MaxSize int
	// Entry of rank 0, which has the address book and the process sets.
	Entry []byte
}

// Encode returns the encoding of h. Launchers that carry only texts encode it further.
func (h HandOver) Encode() ([]byte, error) {
	switch {
	case len(h.Namespace) == 0 || len(h.Namespace) > bootstrap.MaxName:
		return nil, fmt.Errorf("%w: %s: hand over a namespace of %d bytes: want 1 to %d", framework.ErrUnsupported, component, len(h.Namespace), bootstrap.MaxName)
	case len(h.Entry) > MaxEntry:
		return nil, fmt.Errorf("%w: %s: hand over an entry of %d bytes: want at most %d", framework.ErrUnsupported, component, len(h.Entry), MaxEntry)
	}
	return wire.EncodeBody(handOverBody(h)), nil
}

// DecodeHandOver decodes and checks the bytes of Encode.
func DecodeHandOver(b []byte) (HandOver, error) {
	body, err := wire.Decode[handOverBody](b)
	h := HandOver(body)
	switch {
	case err != nil:
		return HandOver{}, fmt.Errorf("%w: %s: hand-over: %w", framework.ErrConfig, component, err)
	case h.Namespace == "" || len(h.Namespace) > bootstrap.MaxName:
		return HandOver{}, fmt.Errorf("%w: %s: hand-over with a namespace of %d bytes: want 1 to %d", framework.ErrConfig, component, len(h.Namespace), bootstrap.MaxName)
	case h.FirstRank < 1 || h.Size < 1 || h.FirstRank > wire.MaxElements-h.Size || h.MaxSize < h.Size:
		return HandOver{}, fmt.Errorf("%w: %s: hand-over with ranks from %d, %d processes and at most %d at a time", framework.ErrConfig, component, h.FirstRank, h.Size, h.MaxSize)
	}
	if _, err := decodeEntry(h.Entry); err != nil {
		return HandOver{}, fmt.Errorf("%w: %s: hand-over: the entry of rank 0: %w", framework.ErrConfig, component, err)
	}
	return h, nil
}

// handOverBody is the encoding of a HandOver.
type handOverBody struct {
	Namespace string `cbor:"1,keyasint"`
	FirstRank int    `cbor:"2,keyasint"`
	Size      int    `cbor:"3,keyasint"`
	MaxSize   int    `cbor:"4,keyasint"`
	Entry     []byte `cbor:"5,keyasint"`
}
