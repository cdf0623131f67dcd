package cpu

import "testing"

func TestParseModel_SeveralProcessors_ReturnsFirst(t *testing.T) {
	for cpuinfo, want := range map[string]string{
		"processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD  EPYC\nflags\t: fpu\n\nprocessor\t: 1\nmodel name\t: other\n": "AMD EPYC, family 26, model 2",
		"processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n":                            "implementer 0x41, variant 0x3, part 0xd0c",
		"processor\t: 0\nmodel name\t:\n": "unknown",
		"":                                "unknown",
	} {
		if got := parseModel(cpuinfo); got != want {
			t.Errorf("%q: %q, want %q", cpuinfo, got, want)
		}
	}
}

// Each opening of a session calls Model.
func BenchmarkModel(b *testing.B) {
	for b.Loop() {
		Model()
	}
}
