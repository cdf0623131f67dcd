// Package wire implements PMI-1 as a client. Lines of text are exchanged over one connection, with
// one request at a time. Fields of answers are found by name, because servers differ in their order
// and number.
//
// It knows neither environment nor address book. Input from a server is untrusted. It is bounded,
// read once, and never causes a panic.
package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxLine is the longest line that is read, in bytes with its end. A value of the servers'
	// limit of 1,024 needs a third of it.
	MaxLine = 4 << 10

	// MaxRequest is the longest line that is sent, in bytes with its end. Slurm's server takes the
	// result of one read of that size for a whole line.
	MaxRequest = 1 << 10

	// maxFields limits the fields of a line. Answers have up to seven.
	maxFields = 64
)

// A Line is a parsed line of a server.
type Line struct {
	Cmd    string
	text   string
	fields []field
}

type field struct{ key, value string }

// Parse parses a line without its end, cmd=NAME and then key=value pairs. A value may contain "=".
// Words without "=" are skipped, because a server's message may have some. A duplicate key is
// ambiguous, and an error.
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

// Value returns the value of key.
func (l Line) Value(key string) (value string, ok bool) {
	for _, f := range l.fields {
		if f.key == key {
			return f.value, true
		}
	}
	return "", false
}

// Text is Value for a key that must have a value.
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

// IsRefused reports whether the server refused the request. Hydra shows it by rc alone (with
// "info=ok" beside rc=1), Slurm by info alone.
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

// Limits of Quote for a line, for a word in it, and for a word that may belong to a published
// value.
const (
	quotedLine  = 256
	quotedWord  = 96
	quotedValue = 20
)

// Quote shortens a line for an error message. Published values may be secrets, so only their
// beginning is quoted.
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

// errRequest is the error of a request that PMI-1 cannot represent.
var errRequest = errors.New("PMI-1 cannot represent the request")

// formatRequest returns a line with its end, of command cmd with alternating keys and values.
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

// isRepresentable reports whether value is transmitted unchanged. A backslash is not, because newer
// servers take it for an escape.
func isRepresentable(value string) bool {
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return value != ""
}
