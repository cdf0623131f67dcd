package run

import (
	"slices"
	"strings"
	"testing"
)

func TestNormalize_ArgumentsOfProgram_AreKept(t *testing.T) {
	for in, want := range map[string]string{
		"run -np 4 prog -np 5":             "run --np 4 prog -np 5",
		"run -n 4 prog -wdir x":            "run -n 4 prog -wdir x",
		"run -np2 prog -np3":               "run --np=2 prog -np3",
		"run -npernode 2 prog":             "run --npernode 2 prog", // An error of a later check.
		"run -npx prog":                    "run -npx prog",         // An error of a later check.
		"run -np=4 prog":                   "run --np=4 prog",
		"run -n4 prog":                     "run -n4 prog",
		"run -wdir /tmp -x A=b prog":       "run --wdir /tmp -x A=b prog",
		"run -timeout 5s -tag-output prog": "run --timeout 5s --tag-output prog",
		"run --tag-output -np 2 prog -np":  "run --tag-output --np 2 prog -np",
		"run --explain prog -host a":       "run --explain prog -host a",
		"run -x -np prog":                  "run -x -np prog",
		"run -- -np 4":                     "run -- -np 4",
		"run -host a -np 4 prog":           "run --host a -np 4 prog", // An error of a later check.
		"run -n":                           "run -n",
		"info -np 4":                       "info -np 4",
		"":                                 "",
	} {
		if got := strings.Join(Normalize(strings.Fields(in)), " "); got != want {
			t.Errorf("Normalize(%s) = %s, want %s", in, got, want)
		}
	}
}

func FuzzNormalize_ArgumentsOfProgram_AreKept(f *testing.F) {
	f.Add("-np 4 --tag-output")
	f.Add("-x A=b -wdir=/tmp -n")
	f.Add("-hostfile -=-")
	f.Fuzz(func(t *testing.T, flags string) {
		// All arguments after "--" belong to the program, unless it is the value of a flag.
		tail := []string{"x", "--", "program", "-np", "-n4", "--host"}
		out := Normalize(slices.Concat([]string{"run"}, strings.Fields(flags), tail))
		if !slices.Equal(out[len(out)-4:], tail[2:]) {
			t.Errorf("%q became %q", flags, out)
		}
	})
}
