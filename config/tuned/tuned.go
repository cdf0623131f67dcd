// Package tuned is the file in which `ferry tune` keeps what it has measured on
// this machine: where it lies, what it holds, and whether it holds here and now.
// Package config reads it at the start of every program, as a source of values;
// the command writes and removes it.
//
// It stands on internal/cpu, which names the machine, and knows no parameter: it
// hands on names and texts.
package tuned

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/config/internal/userfile"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Format is the version of the file. Raise it when the fields change, or when
// the code that was measured has changed so much that old results mislead.
const Format = 2

// maxFile bounds what is read. A result has about 10 KiB.
const maxFile = 256 << 10

// Machine is what a result is valid for.
type Machine struct {
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"` // that are online
	Kernel     string `json:"kernel"`     // its release
}

// ThisMachine costs about 50 us.
func ThisMachine() Machine {
	m := Machine{CPU: cpu.Model(), Processors: cpu.Online(), Kernel: "unknown"}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// Param is one parameter that was measured.
type Param struct {
	Name    string `json:"name"`
	Default string `json:"default"` // what the value was measured against
	Value   string `json:"value"`   // equal to Default where nothing was clearly better
	// Gain is how much better Value was than Default, as a part of it: 0.1 is a
	// tenth. 0 if Value is the default.
	Gain float64 `json:"gain"`
}

// Result is what the file holds.
type Result struct {
	Format   int       `json:"format"`
	Machine  Machine   `json:"machine"`
	Ferry    string    `json:"ferry"` // the version that has measured; for people
	Measured time.Time `json:"measured"`
	Params   []Param   `json:"params"`
	// Figures is what the values stand on, for people and tools. In the file it is a
	// JSON value of its own behind the rest, so that programs that start don't read
	// it: Read leaves it empty.
	Figures json.RawMessage `json:"figures,omitempty"`
}

// Changed returns the parameters that are not at their defaults.
func (r *Result) Changed() []Param {
	var out []Param
	for _, p := range r.Params {
		if p.Value != p.Default {
			out = append(out, p)
		}
	}
	return out
}

// Dir returns the directory of results: ferry/tune in the user's cache directory
// (os.UserCacheDir), by the values of XDG_CACHE_HOME and HOME. It is empty where
// these name none.
func Dir(xdgCacheHome, home string) string {
	return userfile.Path(xdgCacheHome, home, ".cache", "ferry/tune")
}

// File returns the name of a machine's file in dir. Machines with the same
// processors share one, others don't: they may share a home directory.
func (m Machine) File(dir string) string {
	words := strings.FieldsFunc(strings.ToLower(m.CPU), func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	name := strings.Join(words, "-")
	return filepath.Join(dir, fmt.Sprintf("%s-x%d.json", name[:min(len(name), maxName)], m.Processors))
}

// maxName bounds the part of a file's name that is the processor's; file systems
// take 255 bytes.
const maxName = 100

// Exists reports whether dir may hold results: a cheap question to ask before
// ThisMachine. It is false for the empty dir.
func Exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// Read returns the result in file, if it holds on machine m. A file that isn't
// there is fs.ErrNotExist; other errors say in words why the file is not used:
// it can't be read, is malformed, of another version, or from another machine.
func Read(file string, m Machine) (*Result, error) {
	if err := userfile.Check(file, maxFile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	var r Result
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&r); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	switch {
	case r.Format != Format:
		return nil, fmt.Errorf("has format %d, and this ferry reads %d", r.Format, Format)
	case r.Machine.CPU != m.CPU || r.Machine.Processors != m.Processors:
		return nil, fmt.Errorf("was measured on another machine (%s; %d processors)", r.Machine.CPU, r.Machine.Processors)
	case r.Machine.Kernel != m.Kernel:
		return nil, fmt.Errorf("was measured under kernel %s, and this is %s", r.Machine.Kernel, m.Kernel)
	}
	r.Figures = nil
	return &r, nil
}

// Prepare makes dir, and checks that files can be made there.
func Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// Write puts r in place of what file holds. Who reads meanwhile sees the old
// result or the new one, and never a part. The directory must exist.
func (r *Result) Write(file string) error {
	head := *r
	head.Figures = nil
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	text = slices.Concat(text, []byte("\n"), r.Figures, []byte("\n"))
	return renameio.WriteFile(file, text, 0o600, renameio.WithTempDir(filepath.Dir(file)))
}
