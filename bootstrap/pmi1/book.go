package pmi1

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// The address book is the server's name service: what is published there is seen at once
// and by everybody, while what is put into the key space waits for a barrier of all.
//
// An entry stands under ferry/KVSNAME/RANK as COUNT.SUM.HEX. COUNT is over 1 if it does
// not fit into one port: then ferry/KVSNAME/RANK/1 and so on hold the rest, in the same
// form. The head is published last, so that who finds it finds all. SUM is the CRC-32 of
// the name and what follows the sum, by which an answer that was cut, or that belongs to
// another request, is found out.

const (
	// mostParts is enough for an entry of meet.MaxEntry bytes with the smallest limits
	// that are accepted.
	mostParts = 99

	partHeader = len("99.00000000.")
)

// service returns the name of a part of p's entry. It fits into most bytes, of which the
// server needs one: a long namespace is there as its hash.
func service(p framework.Proc, part, most int) string {
	const longest = len("ferry//4294967295/99")
	namespace := p.Namespace
	if longest+len(namespace) >= most || strings.ContainsFunc(namespace, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		h := fnv.New128a()
		h.Write([]byte(namespace))
		namespace = hex.EncodeToString(h.Sum(nil))
	}
	name := "ferry/" + namespace + "/" + strconv.FormatUint(uint64(p.Rank), 10)
	if part > 0 {
		name += "/" + strconv.Itoa(part)
	}
	return name
}

// encodePart returns what is published under name.
func encodePart(name string, count int, part []byte) string {
	text := hex.EncodeToString(part)
	return fmt.Sprintf("%d.%08x.%s", count, sum(name, count, text), text)
}

func sum(name string, count int, text string) uint32 {
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%s %d %s", name, count, text))
}

var errPart = errors.New("it is cut, or nothing that a ferry program has published there")

// decodePart is the inverse of encodePart.
func decodePart(name, port string) (count int, part []byte, err error) {
	head, rest, _ := strings.Cut(port, ".")
	check, text, _ := strings.Cut(rest, ".")
	if count, err = strconv.Atoi(head); err != nil || count < 1 || count > mostParts {
		return 0, nil, errPart
	}
	if want, err := strconv.ParseUint(check, 16, 32); err != nil || uint32(want) != sum(name, count, text) {
		return 0, nil, errPart
	}
	if part, err = hex.DecodeString(text); err != nil {
		return 0, nil, errPart
	}
	return count, part, nil
}

// book is the name service of a job.
type book struct{ wire *wire.Client }

func (b book) service(p framework.Proc, part int) string { return service(p, part, b.wire.Maxes().Key) }

// write publishes p's entry. When a part can't be published, those that were are withdrawn.
func (b book) write(ctx context.Context, p framework.Proc, entry []byte) error {
	room := (b.wire.MaxPort(b.service(p, mostParts)) - partHeader) / 2
	if len(entry) > room*mostParts || len(entry) > meet.MaxEntry {
		return fmt.Errorf("%w: bootstrap pmi1: an address entry of %d bytes: the limit is %d", framework.ErrUnsupported, len(entry), min(room*mostParts, meet.MaxEntry))
	}
	count := max(1, (len(entry)+room-1)/room)
	for i := count - 1; i >= 0; i-- {
		err := b.writePart(ctx, b.service(p, i), count, entry[i*room:min((i+1)*room, len(entry))])
		if err == nil {
			continue
		}
		for j := i + 1; j < count && b.wire.Err() == nil; j++ {
			b.wire.Unpublish(context.WithoutCancel(ctx), b.service(p, j)) // the error that counts is err
		}
		return err
	}
	return nil
}

func (b book) writePart(ctx context.Context, name string, count int, part []byte) error {
	port := encodePart(name, count, part)
	err := b.wire.Publish(ctx, name, port)
	if _, ok := errors.AsType[*wire.RefusedError](err); !ok {
		return err
	}
	there, ok, lookupErr := b.wire.Lookup(ctx, name)
	switch {
	case lookupErr != nil:
		return errors.Join(err, lookupErr)
	case !ok:
		return err
	case there == port:
		return nil // by an earlier call of this process, whose context ended
	}
	return fmt.Errorf("%w: %w, as %s", err, bootstrap.ErrPublished, wire.Quote("port="+there))
}

// read returns p's entry; ok is false while there is none.
func (b book) read(ctx context.Context, p framework.Proc) (entry []byte, ok bool, err error) {
	count := 1
	for i := 0; i < count; i++ {
		name := b.service(p, i)
		port, ok, err := b.wire.Lookup(ctx, name)
		if err != nil || !ok && i == 0 {
			return nil, false, err
		}
		n, part, err := 0, []byte(nil), errors.New("it is missing")
		if ok {
			n, part, err = decodePart(name, port)
		}
		if err == nil && i > 0 && n != count || len(entry)+len(part) > meet.MaxEntry {
			err = errPart
		}
		if err != nil {
			return nil, false, &framework.TransportError{
				Component: "bootstrap pmi1", Peer: p.String(), Op: "find the address",
				Err: fmt.Errorf("part %d under the name %s, %s: %w", i+1, name, wire.Quote("port="+port), err),
			}
		}
		count = n
		entry = append(entry, part...)
	}
	return entry, true, nil
}
