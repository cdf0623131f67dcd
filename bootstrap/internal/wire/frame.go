package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxFrame is the largest content of a frame, in bytes. It has room for a construct of 200
	// members with payloads of 64 KiB.
	MaxFrame = 16 << 20

	// MaxHello is the largest content of a frame before the handshake.
	MaxHello = 4 << 10

	// HeaderSize is the length of a header.
	HeaderSize = 4 + 1 + 1 + 9
)

// ErrFrameSize is the error of a frame with an invalid length.
var ErrFrameSize = errors.New("frame length out of range")

// Header returns the beginning of a frame up to the encoded body, so that answers to many requests
// can share one body.
func Header(k Kind, id uint64, bodyLen int) ([]byte, error) {
	n := HeaderSize - 4 + bodyLen
	if n > MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrFrameSize, n, MaxFrame)
	}
	h := make([]byte, HeaderSize, HeaderSize+bodyLen)
	binary.BigEndian.PutUint32(h, uint32(n))
	h[4], h[5], h[6] = arrayOf3, byte(k), uint64Follows
	binary.BigEndian.PutUint64(h[7:], id)
	return h, nil
}

// Encode returns a frame, or an error if the body exceeds its limits.
func Encode(k Kind, id uint64, body any) ([]byte, error) {
	if err := check(body); err != nil {
		return nil, err
	}
	b := EncodeBody(body)
	h, err := Header(k, id, len(b))
	if err != nil {
		return nil, err
	}
	return append(h, b...), nil
}

// A Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	br    *bufio.Reader
	limit uint32
}

// NewReader returns a Reader that accepts frames up to limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{bufio.NewReader(r), uint32(limit)}
}

// SetLimit changes the limit for later frames.
func (r *Reader) SetLimit(limit int) { r.limit = uint32(limit) }

// Next returns the next message. io.EOF means that the stream ended between frames. After any other
// error the stream is unusable.
func (r *Reader) Next() (Message, error) {
	var h [4]byte
	if _, err := io.ReadFull(r.br, h[:]); err != nil {
		return Message{}, err
	}
	n := binary.BigEndian.Uint32(h[:])
	if n == 0 || n > r.limit {
		return Message{}, fmt.Errorf("%w: %d bytes, limit %d", ErrFrameSize, n, r.limit)
	}
	b, err := readN(r.br, int64(n))
	if err != nil {
		return Message{}, err
	}
	m, err := DecodeMessage(b)
	if err != nil {
		return Message{}, fmt.Errorf("malformed frame: %w", err)
	}
	return m, nil
}

// readN reads n bytes. Above 256 KiB, memory grows with the received bytes, so that a header alone
// allocates little.
func readN(r io.Reader, n int64) ([]byte, error) {
	const step = 256 << 10
	var b bytes.Buffer
	b.Grow(int(min(n, step)) + bytes.MinRead)
	_, err := io.CopyN(&b, r, n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), err
}
