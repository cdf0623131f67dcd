package explain

import (
	"io"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// FuzzMerge checks that reports of two ranks have a printable explanation, or an error.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"pairs":[{"from":0,"to":1,"pml":"ob1","transport":"shm","unused":[{"name":"eth0","reason":"x"}]}],"components":[{"framework":"btl","name":"shm","verdict":"selected"}]}`),
		[]byte(`{"pairs":[{"from":1,"to":0}],"components":[{"framework":"btl","name":"shm","verdict":"unavailable"}],"requirements":[{}],"collectives":[{"members":2}]}`))
	f.Add([]byte(`{"pairs":[{"from":-1,"to":9223372036854775807}]}`), []byte("null"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first)+len(second) > 4096 {
			return
		}
		e, err := Merge([]launch.Report{{Rank: 1, Name: ReportName, Body: second}, {Rank: 0, Name: ReportName, Body: first}, {Name: "timing"}})
		if err != nil {
			return
		}
		if err := e.Print(io.Discard, All, 1000); err != nil {
			t.Error(err)
		}
	})
}
