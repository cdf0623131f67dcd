package pmi1

import (
	"context"

	"github.com/ferrympi/ferry/bootstrap"
)

// directory is the server's name service for programs as a bootstrap.Directory. bootstrap/mesh adds
// sizes, waits and deadlines. Published values stay until they are withdrawn or the job ends.
// Values beyond some KiB are slow, because each request has 450 bytes.
type directory struct{ l *launcher }

// Unwrap returns the optional interfaces for framework.As.
func (l *launcher) Unwrap() any { return directory{l} }

func (n directory) service(op string) (nameService, error) {
	return nameService{n.l.proc.wire}, n.l.checkUsable(op, "the launcher")
}

func (n directory) publicName(name string) string {
	return publicName(n.l.proc.id.Proc.Namespace, name)
}

// Publish implements bootstrap.Directory.
func (n directory) Publish(ctx context.Context, name string, value []byte) error {
	b, err := n.service("publish")
	if err != nil {
		return err
	}
	return b.publish(ctx, n.publicName(name), value)
}

// Unpublish implements bootstrap.Directory.
func (n directory) Unpublish(ctx context.Context, name string) error {
	b, err := n.service("unpublish")
	if err != nil {
		return err
	}
	ok, err := b.unpublish(ctx, n.publicName(name))
	if err == nil && !ok {
		err = bootstrap.ErrNotPublished
	}
	return err
}

// Lookup implements bootstrap.Directory, except that it never waits.
func (n directory) Lookup(ctx context.Context, name string, _ bool) (value []byte, ok bool, err error) {
	b, err := n.service("look up")
	if err != nil {
		return nil, false, err
	}
	return b.lookUp(ctx, n.publicName(name), bootstrap.MaxValue)
}
