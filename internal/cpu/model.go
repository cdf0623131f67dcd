package cpu

import (
	"io"
	"os"
	"strings"
)

// modelHead is the number of bytes that Model reads of /proc/cpuinfo, enough for the first
// processor. The kernel generates the file on read, which costs milliseconds for all of a large
// machine.
const modelHead = 4096

// Model returns the name of the machine's processor ("AMD EPYC, family 26, model 2"), the
// numbers of an ARM processor without a name, or "unknown". Equal processors have equal names.
func Model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	head := make([]byte, modelHead)
	n, _ := io.ReadFull(f, head)
	return parseModel(string(head[:n]))
}

// modelFields maps the distinguishing keys of /proc/cpuinfo to printed prefixes.
var modelFields = map[string]string{
	"model name": "", "cpu family": "family ", "model": "model ",
	"CPU implementer": "implementer ", "CPU variant": "variant ", "CPU part": "part ",
}

// parseModel parses the entry of the first processor.
func parseModel(cpuinfo string) string {
	var name string
	var numbers []string
	for line := range strings.Lines(cpuinfo) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			break // Blank line before the next processor.
		}
		key, value = strings.TrimSpace(key), strings.Join(strings.Fields(value), " ")
		word, known := modelFields[key]
		switch {
		case !known || value == "":
		case word == "":
			name = value
		default:
			numbers = append(numbers, word+value)
		}
	}
	if name != "" {
		numbers = append([]string{name}, numbers...)
	}
	if len(numbers) == 0 {
		return "unknown"
	}
	return strings.Join(numbers, ", ")
}
