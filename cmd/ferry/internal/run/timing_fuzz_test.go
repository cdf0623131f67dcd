package run

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// FuzzTiming checks that any report of a rank is an error or can be printed.
func FuzzTiming(f *testing.F) {
	f.Add(openReport(1, 20, 50).Body)
	f.Add([]byte(`{"rank":-1,"marks":[{"step":"x","at_ns":-9223372036854775808}],"parts":[{"step":"x","took_ns":9223372036854775807}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		x, err := mergeTiming(1000*time.Second, testResult(launch.Report{Rank: 1, Name: timingReport, Body: body}))
		if err != nil {
			return
		}
		if err := x.print(io.Discard); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(x); err != nil {
			t.Error(err)
		}
	})
}
