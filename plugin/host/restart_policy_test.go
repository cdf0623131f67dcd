package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework/scripttest"
)

func TestRestartPolicy_Scripts_Replay(t *testing.T) {
	scripttest.Run(t, "testdata/restart_policy/*.txt", func() func(string) ([]string, error) {
		var l restartPolicy
		return func(line string) (out []string, err error) {
			command, rest, _ := strings.Cut(line, " ")
			tell := func(why error) {
				if pause, again := l.recordEnd(why); again {
					out = append(out, fmt.Sprint("start after ", pause))
				} else {
					out = append(out, "done")
				}
			}
			switch command {
			case "open":
				if _, err := fmt.Sscanf(rest, "restarts=%d", &l.maxRestarts); err != nil {
					return nil, err
				}
			case "ends", "fails":
				tell(errors.New(rest))
			case "refused":
				tell(fmt.Errorf("%w: %s", errRefused, rest))
			case "begins":
				l.beginStart()
			case "started":
				l.recordStart()
			case "close":
				l.close()
			default:
				return nil, fmt.Errorf("no such command: %s", line)
			}
			if down := l.downError(); down != nil {
				return append(out, "down: "+down.Error()), nil
			}
			return append(out, "runs"), nil
		}
	})
}
