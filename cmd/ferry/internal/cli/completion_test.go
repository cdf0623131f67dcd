package cli_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/needs"
)

// bashCompletion has functions that the script for bash calls.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// shells complete the words of a command line with scripts of `ferry completion`. None needs a terminal.
var shells = map[string]func(words []string) *exec.Cmd{
	"bash": func(words []string) *exec.Cmd {
		// Readline divides words at =, and replaces the part behind it.
		var parts []string
		for _, w := range words {
			name, value, hasValue := strings.Cut(w, "=")
			if parts = append(parts, name); hasValue {
				parts = append(parts, "=", value)
			}
		}
		script := `. ` + bashCompletion + ` && . <(ferry completion bash) || exit 1
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
f=$(complete -p ferry); f=${f##*-F }; ${f% *} ferry "${COMP_WORDS[-1]}" 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"`
		return exec.Command("bash", append([]string{"--norc", "-c", script, "bash", strings.Join(words, " ")}, parts...)...)
	},
	"zsh": func(words []string) *exec.Cmd {
		script := `compdef() { }; . <(ferry completion zsh) || exit 1
_describe() { print -rl -- $completions; }
_arguments() { }
words=("$@") CURRENT=$#; _ferry`
		return exec.Command("zsh", append([]string{"-f", "-c", script, "zsh"}, words...)...)
	},
	"fish": func(words []string) *exec.Cmd {
		script := `ferry completion fish | source; or exit 1; complete -C $argv[1]`
		return exec.Command("fish", "--no-config", "-c", script, strings.Join(words, " "))
	},
}

func TestCompletion_EachShell_OffersValues(t *testing.T) {
	for shell, command := range shells {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				needs.Missing(t, "%s is missing: see scripts/setup", shell)
			}
			if _, err := os.Stat(bashCompletion); shell == "bash" && err != nil {
				needs.Missing(t, "bash-completion is missing: see scripts/setup: %v", err)
			}
			t.Setenv("HOME", t.TempDir())
			for line, want := range map[string]string{
				"run --bind-to ":                    "core none",
				"run --on-failure c":                "continue",
				"run --set btl.shm.eager":           "btl.shm.eager_limit=",
				"run --set btl=":                    "btl=self btl=shm btl=tcp",
				"run --set btl=self,s":              "btl=self,shm",
				"run --set cid.policy=":             "cid.policy=agree cid.policy=auto cid.policy=gather cid.policy=lazy",
				"run --set explain=":                "explain=false explain=true",
				"bench lat":                         "latency latency_mt",
				"bench latency --format ":           "csv gobench json osu",
				"bench latency --thread-level s":    "serialized single",
				"bench idle --in ":                  "barrier receive",
				"matrix --suite ":                   "full quick",
				"matrix --components ob1+shm,ob1+s": "ob1+shm,ob1+self",
				"matrix --components ^ob1+t":        "^ob1+tcp",
				"info --params btl.shm.eager":       "btl.shm.eager_limit",
				"component check ./x --protocol ":   "ferry go-plugin",
				"build --with ./x --protocol f":     "ferry",
				"explain --set btl.tcp.eager":       "btl.tcp.eager_limit=",
				"resize 1 --pset m":                 "mpi://WORLD",
			} {
				words := strings.Split("ferry "+line, " ")
				cmd := command(words)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v\n%s", line, err, out)
				}
				if offered := offers(shell, words[len(words)-1], string(out)); offered != want {
					t.Errorf("%s: %q, want %q", line, offered, want)
				}
			}
		})
	}
}

// offers returns the words that a shell offers for the last word, sorted.
func offers(shell, last, out string) string {
	var all []string
	name, _, hasValue := strings.Cut(last, "=")
	for line := range strings.Lines(out) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t") // A description follows.
		switch shell {
		case "bash":
			if hasValue {
				word = name + "=" + word
			}
		case "zsh":
			word = strings.ReplaceAll(word, `\:`, ":")
		case "fish": // A second candidate keeps fish from adding a space.
			word = strings.TrimSuffix(word, ".")
		}
		if strings.HasPrefix(word, last) && !slices.Contains(all, word) { // Zsh itself drops the others.
			all = append(all, word)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
