package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A block is a piece of code of a page: fenced, or indented by four columns.
type block struct {
	line  int // of the page, from 1
	lines []string
	orders
}

// orders are what a comment above a block says. Who reads the page sees nothing of it:
//
//	<!-- docs: not run, REASON -->      the commands are left alone
//	<!-- docs: full, REASON -->         they run with -full only
//	<!-- docs: clone -->                they run in the tests of a clone only
//	<!-- docs: kill TEXT -->            the test kills process N when a line ends with TEXT N
//	<!-- docs: file PATH -->            the block is that file
//	<!-- docs: program NAME -->         bin/program is that one of programs
//	<!-- docs: status N -->             with which each command ends; otherwise 0
//	<!-- docs: short FLAGS -->          what is added to each command, unless -full is given
//	<!-- docs: output varies -->        and is not compared
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

// command is a line that a reader types, and what the page says that it prints.
type command struct {
	line string
	says []string
}

// typed are the programs whose names begin a command where no line of a block has a prompt.
var typed = []string{"ferry", "make", "go", "mpirun", "mpiexec", "mpiexec.hydra", "prterun", "prun", "srun", "sbatch", "salloc", "dlv", "gdb", "perf", "curl", "docker", "kubectl"}

// said is the beginning of what ferry prints.
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

// plain is text without what differs from run to run.
func plain(text string) string {
	return spaces.ReplaceAllString(numbers.ReplaceAllString(text, "#"), " ")
}

// missing returns the first piece of what a page shows that is not in the output. "..." stands
// for anything.
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
