// Package wire speaks PMI-1 as a client: lines of text over one connection, one
// request at a time, and each answer found by what it is called, because servers
// differ in the order and number of the fields.
//
// It knows neither environment nor address book. What it is told by a server it
// takes for untrusted input: it is read once, bounded, and never a reason to panic.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxLine is the longest line of a server that is read, in bytes with its end. A
	// value that fills the servers' limit of 1,024 takes a third of it.
	MaxLine = 4 << 10

	// MaxRequest is the longest line that is sent, in bytes with its end: Slurm's server
	// takes what one read of that size gives for a whole line.
	MaxRequest = 1 << 10

	// maxFields is the most that a line may have; answers have up to seven.
	maxFields = 64
)

// A Line is one line of a server, parsed.
type Line struct {
	Cmd    string
	text   string
	fields []field
}

type field struct{ key, value string }

// Parse reads a line without its end: cmd=NAME, then key=value with spaces between.
// A value may hold "=". Words without "=" are skipped: a server's message may have
// some. A duplicate key is an error, because nobody knows which one counts.
func Parse(text string) (Line, error) {
	l := Line{text: text}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return Line{}, l.errorf(fmt.Sprintf("byte %#02x at %d", c, i))
		}
	}
	for word := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(word, "=")
		first := l.Cmd == ""
		switch {
		case first && (key != "cmd" || value == ""):
			return Line{}, l.errorf("it does not begin with cmd=")
		case first:
			l.Cmd = value
			continue
		case !ok:
			continue
		case key == "":
			return Line{}, l.errorf("a value without a key")
		case len(l.fields) == maxFields:
			return Line{}, l.errorf(fmt.Sprintf("more than %d fields", maxFields))
		}
		if _, twice := l.Value(key); twice || key == "cmd" {
			return Line{}, l.errorf(strconv.Quote(key) + " appears twice")
		}
		l.fields = append(l.fields, field{key, value})
	}
	if l.Cmd == "" {
		return Line{}, l.errorf("it does not begin with cmd=")
	}
	return l, nil
}

// Value returns what the line says of key.
func (l Line) Value(key string) (value string, ok bool) {
	for _, f := range l.fields {
		if f.key == key {
			return f.value, true
		}
	}
	return "", false
}

// Text is Value for what must be there and not be empty.
func (l Line) Text(key string) (string, error) {
	value, _ := l.Value(key)
	if value == "" {
		return "", l.errorf("no " + key)
	}
	return value, nil
}

// Number is Text for a decimal number in [low, high].
func (l Line) Number(key string, low, high int) (int, error) {
	text, err := l.Text(key)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, l.errorf(fmt.Sprintf("%s is not a number in %d to %d", key, low, high))
	}
	return n, nil
}

// Refused reports whether the line says that the request was not done. Hydra says so
// by rc alone (and then even "info=ok" beside rc=1), Slurm by info alone.
func (l Line) IsRefused() bool {
	if rc, ok := l.Value("rc"); ok && rc != "0" {
		return true
	}
	info, ok := l.Value("info")
	return ok && info != "ok"
}

func (l Line) String() string { return Quote(l.text) }

func (l Line) errorf(why string) error {
	return fmt.Errorf("the launcher's line %s: %s", Quote(l.text), why)
}

// What Quote leaves of a line, of a word in it, and of one that may be, or be a part
// of, a value that somebody has published.
const (
	quotedLine  = 256
	quotedWord  = 96
	quotedValue = 20
)

// Quote returns a line for an error message. Of a value only the beginning is there:
// published ones carry secrets, which don't belong into logs.
func Quote(text string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(text, " ") {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		most := quotedWord
		if key, _, ok := strings.Cut(word, "="); !ok || key == "port" || key == "value" {
			most = quotedValue
		}
		if len(word) <= most {
			b.WriteString(word)
		} else {
			fmt.Fprintf(&b, "%s...(%d bytes)", word[:most], len(word))
		}
		if b.Len() > quotedLine {
			b.WriteString("...")
			break
		}
	}
	return strconv.Quote(b.String())
}

// errRequest is the reason for a request that can't be said in this protocol.
var errRequest = errors.New("a request of PMI-1 can't carry it")

// request builds a line with its end, of command cmd with keys and values by turns.
func formatRequest(cmd string, fields ...string) (string, error) {
	var b strings.Builder
	b.WriteString("cmd=" + cmd)
	for i := 0; i < len(fields); i += 2 {
		key, value := fields[i], fields[i+1]
		if !isRepresentable(value) {
			return "", fmt.Errorf("%w: %s of %s is empty, or has a space, a backslash or a byte beyond ASCII: %s", errRequest, key, cmd, Quote(value))
		}
		b.WriteString(" " + key + "=" + value)
	}
	b.WriteByte('\n')
	if b.Len() > MaxRequest {
		return "", fmt.Errorf("%w: %s takes %d bytes, and the limit is %d", errRequest, cmd, b.Len(), MaxRequest)
	}
	return b.String(), nil
}

// sayable reports whether value comes through as it is. A backslash does not: newer
// servers take it for the beginning of an escape.
func isRepresentable(value string) bool {
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return value != ""
}
