package bench

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestCirculate_CommunicatorOfAnySize_Returns(t *testing.T) {
	for n := 1; n <= 3; n++ {
		mpitest.Run(t, n, circulate)
	}
}

func TestCheckElastic_FlagsOfOtherBenchmarks_AreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"grow":                          "",
		"shrink --add 1 --async":        "",
		"grow --add 0":                  "--add 0: want at least 1 process",
		"hello --add 4":                 "--add: hello adds no processes",
		"latency --async":               "--async: latency has no asynchronous form",
		"shrink --goroutines 2":         "",
		"shrink --add 1 --goroutines 2": "shrink measures processes",
	} {
		_, err := checkedLine(t, line)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
