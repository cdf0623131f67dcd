package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// A SpawnRequest describes processes to start. At the server they are a new job with a new key
// space. Strings have no control characters and no backslash, and the program, the directory and
// the arguments are not empty.
type SpawnRequest struct {
	N       int
	Program string
	Args    []string
	Dir     string
	// Key and printable ASCII text in the new key space from its beginning. Get returns it.
	Key, Text string
}

// Limits of a spawn, which are below those of both generations of Hydra, 64 KiB and 1,000 lines. A
// server ends the job for a longer request.
const (
	maxSpawnBytes = 60 << 10
	maxSpawnLines = 980
)

// spawnEnd marks the end of a spawn for servers, at the end of any line.
const spawnEnd = "endcmd"

// spawnCounts begin numbers that newer servers read, within any line.
var spawnCounts = []string{"totspawns=", "spawnssofar="}

// Spawn starts all processes of s or none. It returns when the server has accepted or refused them,
// and does not wait until they run. A request beyond the server's limits is ErrUnsupported, and is
// not sent.
func (c *Client) Spawn(ctx context.Context, s SpawnRequest) error {
	text, err := c.formatSpawn(s)
	if err != nil {
		return fmt.Errorf("%w: bootstrap pmi1: spawn: %w", framework.ErrUnsupported, err)
	}
	lines, err := c.send(ctx, "spawn", text, []string{"spawn_result"})
	if err != nil {
		return err
	}
	return c.checkDone("spawn", lines[0], nil)
}

// formatSpawn returns the lines of a spawn.
func (c *Client) formatSpawn(s SpawnRequest) (string, error) {
	segments, err := c.splitValue(s.Key, s.Text)
	if err != nil {
		return "", err
	}
	b := spawnBuilder{}
	b.add("mcmd", "spawn")
	b.add("nprocs", strconv.Itoa(s.N))
	b.add("execname", s.Program)
	b.add("totspawns", "1")
	b.add("spawnssofar", "1")
	for i, arg := range s.Args {
		b.add("arg"+strconv.Itoa(i+1), arg)
	}
	b.add("argcnt", strconv.Itoa(len(s.Args)))
	b.add("preput_num", strconv.Itoa(len(segments)))
	for i, segment := range segments {
		b.add("preput_key_"+strconv.Itoa(i), segment.key)
		b.add("preput_val_"+strconv.Itoa(i), segment.value)
	}
	b.add("info_num", "1")
	b.add("info_key_0", "wdir")
	b.add("info_val_0", s.Dir)
	b.text.WriteString(spawnEnd + "\n")
	b.lines++
	switch {
	case b.err != nil:
		return "", b.err
	case b.text.Len() > maxSpawnBytes:
		return "", fmt.Errorf("%w: the program with its arguments and hand-over takes %d bytes, and the limit is %d", errRequest, b.text.Len(), maxSpawnBytes)
	case b.lines > maxSpawnLines:
		return "", fmt.Errorf("%w: the program with its arguments and hand-over takes %d lines, and the limit is %d", errRequest, b.lines, maxSpawnLines)
	}
	return b.text.String(), nil
}

// spawnBuilder builds a request of several lines.
type spawnBuilder struct {
	text  strings.Builder
	lines int
	// The first value that cannot be sent.
	err error
}

func (b *spawnBuilder) add(key, value string) {
	if err := checkSpawnValue(value); err != nil && b.err == nil {
		b.err = fmt.Errorf("%w: %s=%s %w", errRequest, key, Quote(value), err)
	}
	b.text.WriteString(key + "=" + value + "\n")
	b.lines++
}

// checkSpawnValue returns an error for a value that a known server refuses, changes, or takes for
// the end of the request.
func checkSpawnValue(value string) error {
	if value == "" {
		return errors.New("is empty")
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' || c == '\\' || c == 0x7f {
			return errors.New("has a backslash or a control character")
		}
	}
	if strings.HasSuffix(value, spawnEnd) {
		return fmt.Errorf("ends with %q, as a request does", spawnEnd)
	}
	for _, count := range spawnCounts {
		if strings.Contains(value, count) {
			return fmt.Errorf("has %q, as a request has", count)
		}
	}
	return nil
}
