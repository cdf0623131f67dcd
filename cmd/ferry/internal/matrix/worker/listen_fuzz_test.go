package worker

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzListen checks that lines other than events are errors, and that events can be encoded again.
func FuzzListen(f *testing.F) {
	f.Add([]byte("{}\n{\"x\":1}\n"))
	if event, err := json.Marshal(Event{}); err == nil {
		f.Add(append(event, '\n'))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		events := 0
		err := readEvents(bytes.NewReader(lines), func(e Event) error {
			events++
			_, err := json.Marshal(e)
			return err
		})
		if err == nil && events > 1+bytes.Count(lines, []byte("\n")) {
			t.Errorf("%d events of %q", events, lines)
		}
	})
}
