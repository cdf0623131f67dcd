package pmi1

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Names of a job in the server's name service are the addresses of its processes, under
// ferry/KVSNAME/RANK, and the names that programs publish, under ferry/n/HASH. Published names are
// visible to all at once, while values in the key space wait for a barrier of all processes.
//
// The value of a name is COUNT.SUM.HEX. If it does not fit into one port, COUNT is above 1, and
// NAME/1 and so on have the rest as SUM.HEX. The head is published last and withdrawn first, so
// that a reader that finds the head finds the rest. SUM is the CRC-32 of the name and the value. It
// detects an answer that is truncated, belongs to another request, or was published earlier.

const (
	// maxParts suffices for a value of bootstrap.MaxValue bytes with the limits of known servers,
	// and for an entry with the smallest accepted limits.
	maxParts = 9999

	headHeader = len("9999.00000000.")
)

// addressName returns the name of p's entry. With the number of a part and the server's zero byte
// it fits into most bytes. A long namespace is replaced by its hash.
func addressName(p framework.Proc, most int) string {
	const longest = len("ferry//4294967295/9999")
	namespace := p.Namespace
	if longest+len(namespace) >= most || strings.ContainsFunc(namespace, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		namespace = hashName(namespace)
	}
	return "ferry/" + namespace + "/" + strconv.FormatUint(uint64(p.Rank), 10)
}

// publicName returns the name of a value that a program publishes. It differs from all addresses,
// because a hash is longer than a rank.
func publicName(namespace, name string) string { return "ferry/n/" + hashName(namespace+"\x00"+name) }

func hashName(text string) string {
	h := fnv.New128a()
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

func partName(name string, part int) string {
	if part == 0 {
		return name
	}
	return name + "/" + strconv.Itoa(part)
}

func checksum(name string, value []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(name)), crc32.IEEETable, value)
}

// encodePorts returns the ports of the parts of a value, each with up to room bytes of it.
func encodePorts(name string, value []byte, room int) (ports []string) {
	count := max(1, (len(value)+room-1)/room)
	check := checksum(name, value)
	for i := range count {
		port := fmt.Sprintf("%08x.%x", check, value[i*room:min((i+1)*room, len(value))])
		if i == 0 {
			port = fmt.Sprintf("%d.%s", count, port)
		}
		ports = append(ports, port)
	}
	return ports
}

var errPart = errors.New("it is truncated, or was not published by a ferry program")

// decodeHead decodes the first part of a value.
func decodeHead(port string) (count int, check string, part []byte, err error) {
	number, rest, _ := strings.Cut(port, ".")
	if count, err = strconv.Atoi(number); err != nil || count < 1 || count > maxParts {
		return 0, "", nil, errPart
	}
	check, _, _ = strings.Cut(rest, ".")
	part, err = decodePart(rest, check)
	return count, check, part, err
}

// decodePart decodes a part, which must have that checksum.
func decodePart(port, check string) ([]byte, error) {
	text, ok := strings.CutPrefix(port, check+".")
	part, err := hex.DecodeString(text)
	if !ok || err != nil {
		return nil, errPart
	}
	return part, nil
}

// nameService is the name service of a job.
type nameService struct{ wire *wire.Client }

// withdrawTimeout limits the withdrawal of a value that was published in part.
const withdrawTimeout = time.Second

// publish publishes a value completely or not at all. It returns bootstrap.ErrPublished if the name
// is in use. With a server that replaces values (Slurm), two concurrent calls may both succeed.
func (b nameService) publish(ctx context.Context, name string, value []byte) error {
	if err := b.checkFree(ctx, name); err != nil {
		return err
	}
	room := (b.wire.MaxPort(partName(name, maxParts)) - headHeader) / 2
	ports := encodePorts(name, value, room)
	if len(ports) > maxParts {
		return fmt.Errorf("%w: bootstrap pmi1: %d bytes under the name %s: the limit is %d", framework.ErrUnsupported, len(value), name, room*maxParts)
	}
	for i := len(ports) - 1; i >= 0; i-- {
		err := b.wire.Publish(ctx, partName(name, i), ports[i])
		if err == nil {
			continue
		}
		first := i // The state of this part is unknown.
		if _, refused := errors.AsType[*wire.RefusedError](err); refused {
			first = i + 1
			err = cmp.Or(b.checkFree(ctx, partName(name, i)), err)
		}
		b.unpublishParts(context.WithoutCancel(ctx), name, first, len(ports))
		return err
	}
	return nil
}

// checkFree returns ErrPublished if name has a value.
func (b nameService) checkFree(ctx context.Context, name string) error {
	port, ok, err := b.wire.Lookup(ctx, name)
	if ok {
		return fmt.Errorf("bootstrap pmi1: publish %s: %w, with %s", name, bootstrap.ErrPublished, wire.Quote("port="+port))
	}
	return err
}

// unpublishParts withdraws parts as far as possible. It returns no error, because the caller has
// one.
func (b nameService) unpublishParts(ctx context.Context, name string, first, end int) {
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	for i := first; i < end && b.wire.Err() == nil && ctx.Err() == nil; i++ {
		b.wire.Unpublish(ctx, partName(name, i))
	}
}

// lookUp returns the value of name, of up to most bytes. ok is false if there is none.
func (b nameService) lookUp(ctx context.Context, name string, most int) (value []byte, ok bool, err error) {
	port, ok, err := b.wire.Lookup(ctx, name)
	if err != nil || !ok {
		return nil, false, err
	}
	bad := func(part int, port string, err error) error {
		return &framework.TransportError{
			Component: "bootstrap pmi1", Peer: "the launcher", Op: "look up " + partName(name, part),
			Err: fmt.Errorf("%s: %w", wire.Quote("port="+port), err),
		}
	}
	head := port
	count, check, value, err := decodeHead(head)
	if err != nil {
		return nil, false, bad(0, head, err)
	}
	for i := 1; i < count && len(value) <= most; i++ {
		port, ok, err := b.wire.Lookup(ctx, partName(name, i))
		if err != nil {
			return nil, false, err
		}
		part, err := decodePart(port, check)
		if !ok {
			err = errors.New("a part is missing")
		}
		if err != nil {
			return nil, false, bad(i, port, err)
		}
		value = append(value, part...)
	}
	if fmt.Sprintf("%08x", checksum(name, value)) != check || len(value) > most {
		return nil, false, bad(0, head, errPart)
	}
	return value, true, nil
}

// unpublish withdraws the value of name. ok is false if there is none.
func (b nameService) unpublish(ctx context.Context, name string) (ok bool, err error) {
	port, ok, err := b.wire.Lookup(ctx, name)
	if err != nil || !ok {
		return false, err
	}
	count, _, _, err := decodeHead(port)
	if err != nil {
		count = 1 // It has no further parts.
	}
	if err := b.wire.Unpublish(ctx, name); err != nil {
		if _, refused := errors.AsType[*wire.RefusedError](err); refused {
			return false, nil // Another process has withdrawn it.
		}
		return false, err
	}
	b.unpublishParts(context.WithoutCancel(ctx), name, 1, count)
	return true, nil
}
