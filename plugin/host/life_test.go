package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework/scripttest"
)

// TestLife replays what becomes of a plugin that ends.
func TestLife(t *testing.T) {
	scripttest.Run(t, "testdata/life/*.txt", func() func(string) ([]string, error) {
		var l life
		return func(line string) (out []string, err error) {
			command, rest, _ := strings.Cut(line, " ")
			tell := func(why error) {
				if pause, again := l.ended(why); again {
					out = append(out, fmt.Sprint("start after ", pause))
				} else {
					out = append(out, "done")
				}
			}
			switch command {
			case "open":
				if _, err := fmt.Sscanf(rest, "restarts=%d", &l.restarts); err != nil {
					return nil, err
				}
			case "ends", "fails":
				tell(errors.New(rest))
			case "refused":
				tell(fmt.Errorf("%w: %s", errRefused, rest))
			case "begins":
				l.begins()
			case "started":
				l.started()
			case "close":
				l.close()
			default:
				return nil, fmt.Errorf("no such command: %s", line)
			}
			if down := l.down(); down != nil {
				return append(out, "down: "+down.Error()), nil
			}
			return append(out, "runs"), nil
		}
	})
}
