package launchers

import (
	"testing"
	"time"
)

// Hydra's map of the nodes has two nodes that are one machine. Communicators are created by that map, and shared memory follows the cards.
func TestConform_MapIsWrong_Passes(t *testing.T) {
	Each(t, []Launcher{hydraNodes}, func(t *testing.T, l *Started) {
		for name, env := range map[string][]string{"single constructs": nil, "levels": {"FERRY_BOOTSTRAP_ROOTS_FROM=0"}} {
			t.Run(name, func(t *testing.T) {
				l.ToTheEnd(t, Job{Size: 4, Program: Ferry, Args: []string{"conform"}, Env: env, Timeout: 3 * time.Minute})
			})
		}
	})
}
