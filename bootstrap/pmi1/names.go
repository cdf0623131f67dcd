package pmi1

import (
	"context"

	"github.com/ferrympi/ferry/bootstrap"
)

// names is the server's name service for the program: a bootstrap.Directory, whose
// sizes, waits and deadlines are meet's. What it has published stays until it is withdrawn, or the job
// ends. Values are slow beyond some KiB: each 450 bytes are a request.
type names struct{ l *launcher }

// Unwrap shows what else the launcher can do, for framework.As.
func (l *launcher) Unwrap() any { return names{l} }

func (n names) book(op string) (book, error) {
	return book{n.l.p.wire}, n.l.usable(op, "the launcher")
}

func (n names) name(name string) string { return publicName(n.l.p.id.Proc.Namespace, name) }

// Publish implements bootstrap.Directory.
func (n names) Publish(ctx context.Context, name string, value []byte) error {
	b, err := n.book("publish")
	if err != nil {
		return err
	}
	return b.write(ctx, n.name(name), value)
}

// Unpublish implements bootstrap.Directory.
func (n names) Unpublish(ctx context.Context, name string) error {
	b, err := n.book("unpublish")
	if err != nil {
		return err
	}
	ok, err := b.remove(ctx, n.name(name))
	if err == nil && !ok {
		err = bootstrap.ErrNotPublished
	}
	return err
}

// Lookup implements bootstrap.Directory, except that it never waits: who wants to asks
// again.
func (n names) Lookup(ctx context.Context, name string, _ bool) (value []byte, ok bool, err error) {
	b, err := n.book("look up")
	if err != nil {
		return nil, false, err
	}
	return b.read(ctx, n.name(name), bootstrap.MaxValue)
}
