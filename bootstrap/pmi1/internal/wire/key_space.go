package wire

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Servers truncate values over their limit without an error. So values are stored in segments, as
// MPICH's clients do. The key has segments=N, and KEY-seg-I/N have the segments.
const segmentsPrefix = "segments="

// maxSegments suffices for the mapping of ten thousand ranks.
const maxSegments = 1 << 10

// segment is a key with a value of up to the server's limit.
type segment struct{ key, value string }

// Put stores a text of printable ASCII without spaces under key. It is visible, to this process
// too, after the next barrier.
func (c *Client) Put(ctx context.Context, key, text string) error {
	segments, err := c.splitValue(key, text)
	if err != nil {
		return transportError("put "+key, err)
	}
	for _, s := range segments {
		if err := c.put(ctx, s.key, s.value); err != nil {
			return err
		}
	}
	return nil
}

// splitValue returns the segments of a text, the last one under key itself.
func (c *Client) splitValue(key, text string) ([]segment, error) {
	most := c.maxValue(key)
	if len(text) <= most {
		return []segment{{key, text}}, nil
	}
	// Keys of segments are longer, and their values shorter.
	most = c.maxValue(segmentKey(key, maxSegments, maxSegments))
	n := (len(text) + most - 1) / max(most, 1)
	if n > maxSegments || most < 1 {
		return nil, fmt.Errorf("%w: %d bytes are more than %d segments of %d", errRequest, len(text), maxSegments, most)
	}
	var segments []segment
	for i := range n {
		segments = append(segments, segment{segmentKey(key, i+1, n), text[i*most : min((i+1)*most, len(text))]})
	}
	return append(segments, segment{key, segmentsPrefix + strconv.Itoa(n)}), nil
}

func (c *Client) put(ctx context.Context, key, text string) error {
	if len(key) >= c.limits.Key {
		return transportError("put "+key, fmt.Errorf("%w: the key has %d bytes, and the limit is %d", errRequest, len(key), c.limits.Key-1))
	}
	l, err := c.request(ctx, "put_result", "put", "kvsname", c.kvsName, "key", key, "value", text)
	return c.checkDone("put "+key, l, err)
}

// maxValue returns the largest length of a value in one piece.
func (c *Client) maxValue(key string) int {
	return min(c.limits.Value-1, MaxRequest-len("cmd=put kvsname= key= value=\n")-len(c.kvsName)-len(key))
}

func segmentKey(key string, i, n int) string { return fmt.Sprintf("%s-seg-%d/%d", key, i, n) }

// Get returns the text under key. ok is false if there is none.
func (c *Client) Get(ctx context.Context, key string) (text string, ok bool, err error) {
	text, ok, err = c.get(ctx, key)
	count, long := strings.CutPrefix(text, segmentsPrefix)
	if err != nil || !ok || !long {
		return text, ok, err
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxSegments {
		return "", false, transportError("get "+key, fmt.Errorf("its value %s is not a number of segments from 1 to %d", Quote(text), maxSegments))
	}
	var whole strings.Builder
	for i := range n {
		part, ok, err := c.get(ctx, segmentKey(key, i+1, n))
		if err != nil {
			return "", false, err
		}
		if !ok {
			return "", false, transportError("get "+key, fmt.Errorf("segment %d of %d is missing", i+1, n))
		}
		whole.WriteString(part)
	}
	return whole.String(), true, nil
}

func (c *Client) get(ctx context.Context, key string) (text string, ok bool, err error) {
	l, err := c.request(ctx, "get_result", "get", "kvsname", c.kvsName, "key", key)
	if err != nil || l.IsRefused() {
		return "", false, err
	}
	if found, ok := l.Value("found"); ok && strings.EqualFold(found, "false") {
		return "", false, nil
	}
	if text, err = l.Text("value"); err != nil {
		return "", false, c.failMalformed("get "+key, err)
	}
	return text, true, nil
}
