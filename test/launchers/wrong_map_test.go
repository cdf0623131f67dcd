package launchers

import (
	"strconv"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

// A map of the nodes has two nodes that are one machine. Communicators are created by that map, and shared memory follows the cards.
func TestConform_MapIsWrong_Passes(t *testing.T) {
	Each(t, []Launcher{hydraNodes, pmixNodes(t)}, func(t *testing.T, l *Started) {
		for name, env := range map[string][]string{"single constructs": nil, "levels": {"FERRY_BOOTSTRAP_ROOTS_FROM=0"}} {
			t.Run(name, func(t *testing.T) {
				l.RunToEnd(t, Job{Size: 4, Program: Ferry, ProgramArgs: []string{"conform"}, ExtraEnv: env, Timeout: 3 * time.Minute})
			})
		}
	})
}

// pmixNodes returns the launcher of pmixtest with two servers. Each server has half of the processes.
func pmixNodes(t *testing.T) Launcher {
	return Launcher{Name: "pmix-nodes", Interface: PMIx, Need: []Need{{"gcc", "gcc"}, {"libpmix.so", "libpmix-dev"}}, RankVariable: "PMIX_RANK",
		commandPrefix: func(n int) []string { return pmixtest.Server(t, "-n", strconv.Itoa(n), "-nodes", "2") }}
}
