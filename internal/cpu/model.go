package cpu

import (
	"io"
	"os"
	"strings"
)

// modelHead is how much of /proc/cpuinfo Model reads: the first processor. The
// kernel makes up the file as it is read, and all of it takes milliseconds on a
// large machine.
const modelHead = 4096

// Model names the machine's processor: "AMD EPYC, family 26, model 2", or the
// numbers that an ARM processor has in place of a name; "unknown" where the
// system doesn't say. Machines with equal processors have the same.
func Model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	head := make([]byte, modelHead)
	n, _ := io.ReadFull(f, head) // what came is what there is to see
	return parseModel(string(head[:n]))
}

// modelFields are what distinguishes processors, with the words for each.
var modelFields = map[string]string{
	"model name": "", "cpu family": "family ", "model": "model ",
	"CPU implementer": "implementer ", "CPU variant": "variant ", "CPU part": "part ",
}

// parseModel reads the entry of the first processor.
func parseModel(cpuinfo string) string {
	var name string
	var numbers []string
	for line := range strings.Lines(cpuinfo) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			break // the blank line before the next processor
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
