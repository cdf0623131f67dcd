package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A block is code of a page, fenced or indented by four columns.
type block struct {
	line  int // of the page, from 1
	lines []string
	orders
}

// orders are the directives in an invisible comment above a block:
//
//	<!-- docs: not run, REASON -->      the commands are not run
//	<!-- docs: full, REASON -->         they run with -full only
//	<!-- docs: clone -->                they run in the tests of a clone only
//	<!-- docs: kill TEXT -->            the test kills process N when a line ends with TEXT N
//	<!-- docs: file PATH -->            the block is that file
//	<!-- docs: program NAME -->         bin/program is that one of programs
//	<!-- docs: status N -->             the exit status of each command, 0 by default
//	<!-- docs: short FLAGS -->          these are added to each command without -full
//	<!-- docs: output varies -->        the output is not compared
//
// Several of them are separated by semicolons.
type orders struct {
	notRun, full, file, program, short, kill string
	status                                   int
	varies, isOfClone                        bool
}

var comment = regexp.MustCompile(`^<!-- docs: (.*) -->$`)

// blocks returns the code of a page.
func blocks(text string) (all []block, err error) {
	var next orders
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if m := comment.FindStringSubmatch(line); m != nil {
			if next, err = parse(m[1]); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			continue
		}
		b := block{line: i + 1, orders: next}
		switch {
		case strings.HasPrefix(line, "```"):
			for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
				b.lines = append(b.lines, lines[i])
			}
		case strings.HasPrefix(line, "    ") && (i == 0 || lines[i-1] == ""):
			for ; i < len(lines) && (strings.HasPrefix(lines[i], "    ") || lines[i] == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ")); i++ {
				b.lines = append(b.lines, strings.TrimPrefix(lines[i], "    "))
			}
			i--
		default:
			if line != "" {
				if next != (orders{}) {
					return nil, fmt.Errorf("line %d: the comment is about a block that does not come", i+1)
				}
			}
			continue
		}
		all = append(all, b)
		next = orders{}
	}
	return all, nil
}

func parse(text string) (o orders, err error) {
	for _, part := range strings.Split(text, ";") {
		part = strings.TrimSpace(part)
		word, rest, _ := strings.Cut(part, " ")
		switch {
		case strings.HasPrefix(part, "not run, "):
			o.notRun = strings.TrimPrefix(part, "not run, ")
		case strings.HasPrefix(part, "full, "):
			o.full = strings.TrimPrefix(part, "full, ")
		case part == "output varies":
			o.varies = true
		case part == "clone":
			o.isOfClone = true
		case word == "kill" && rest != "":
			o.kill = rest
		case word == "file" && rest != "":
			o.file = rest
		case word == "program" && rest != "":
			o.program = rest
		case word == "short" && rest != "":
			o.short = rest
		case word == "status":
			_, err = fmt.Sscanf(rest, "%d", &o.status)
		default:
			err = fmt.Errorf("%q is not an order", part)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// command is a command line with its output in the page.
type command struct {
	line string
	says []string
}

// typed are the programs that begin a command in blocks without a prompt.
var typed = []string{"ferry", "make", "go", "mpirun", "mpiexec", "mpiexec.hydra", "prterun", "prun", "srun", "sbatch", "salloc", "dlv", "gdb", "perf", "curl", "docker", "kubectl"}

// said matches the beginning of ferry's output.
var said = regexp.MustCompile(`^ferry( [a-z]+)?: `)

// commands are the lines behind a prompt; without any prompt, those that begin with a program.
func (b block) commands() (all []command) {
	prompts := slices.ContainsFunc(b.lines, func(l string) bool { return strings.HasPrefix(l, "$ ") })
	for _, l := range b.lines {
		line, prompt := strings.CutPrefix(l, "$ ")
		word, _, _ := strings.Cut(l, " ")
		switch {
		case prompt, !prompts && slices.Contains(typed, word) && !said.MatchString(l):
			all = append(all, command{line: line})
		case prompts && len(all) > 0:
			last := &all[len(all)-1]
			last.says = append(last.says, l)
		}
	}
	return all
}

// pages returns README.md and the pages beside this file.
func pages() (names []string, err error) {
	entries, err := os.ReadDir(".")
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".md") {
			names = append(names, e.Name())
		}
	}
	return append(names, "../README.md"), err
}

var (
	numbers = regexp.MustCompile(`([0-9]+([.:][0-9]+)*( ?(ns|µs|us|ms|s|m|h)\b|m\B)?)+`) // 3, 1.2, 20:31, 214ms, 1m3.5s, 2 us
	spaces  = regexp.MustCompile(`\s+`)
)

// plain returns text without values that differ between runs.
func plain(text string) string {
	return spaces.ReplaceAllString(numbers.ReplaceAllString(text, "#"), " ")
}

// missing returns the first piece of the page's output that is not in the real output. "..." matches
// any text.
func missing(says []string, output string) string {
	output = plain(output)
	for _, line := range says {
		for _, piece := range strings.Split(line, "...") {
			if piece = strings.TrimSpace(piece); piece != "" && !strings.Contains(output, strings.TrimSpace(plain(piece))) {
				return piece
			}
		}
	}
	return ""
}
