package pmi1

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/pmi1/pmi1test"
	"github.com/ferrympi/ferry/framework"
)

func TestDirectory_EveryServer_Publishes(t *testing.T) {
	for style, number := range styles {
		t.Run(style, func(t *testing.T) {
			s := server(t, pmi1test.Options{Style: number})
			var d [2]bootstrap.Directory
			for r := range d {
				var ok bool
				if d[r], ok = framework.As[bootstrap.Directory](rank(t, s, r)); !ok {
					t.Fatal("there is no directory")
				}
			}
			for _, name := range []string{"n", "", "with space\nand line", strings.Repeat("long", 256)} {
				for _, value := range [][]byte{nil, []byte("v"), bytes.Repeat([]byte{7}, 5000)} {
					if _, ok, err := d[1].Lookup(t.Context(), name, false); ok || err != nil {
						t.Fatalf("%.20q before: %t, %v", name, ok, err)
					}
					if err := d[0].Publish(t.Context(), name, value); err != nil {
						t.Fatalf("%.20q: %v", name, err)
					}
					if got, ok, err := d[1].Lookup(t.Context(), name, false); !ok || err != nil || !bytes.Equal(got, value) {
						t.Errorf("%.20q: %d bytes, %t, %v", name, len(got), ok, err)
					}
					if err := d[1].Publish(t.Context(), name, value); !errors.Is(err, bootstrap.ErrPublished) || errors.Is(err, framework.ErrTransport) {
						t.Errorf("%.20q twice: %v", name, err)
					}
					if err := d[1].Unpublish(t.Context(), name); err != nil {
						t.Errorf("%.20q: unpublish: %v", name, err)
					}
					if err := d[0].Unpublish(t.Context(), name); !errors.Is(err, bootstrap.ErrNotPublished) {
						t.Errorf("%.20q: unpublish twice: %v", name, err)
					}
				}
			}
			if left := s.Names(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Remaining parts would prevent the next attempt.
func TestPublish_IsInterrupted_LeavesNoParts(t *testing.T) {
	s := server(t, pmi1test.Options{})
	l := rank(t, s, 0)
	d := directory{l}
	for i := range 12 { // Canceled at the i-th request, or soon after.
		ctx, cancel := context.WithCancel(t.Context())
		at, canceled := len(s.Requests())+i, make(chan struct{})
		go func() {
			defer close(canceled)
			defer cancel()
			for len(s.Requests()) < at && ctx.Err() == nil {
				time.Sleep(20 * time.Microsecond)
			}
		}()
		err := d.Publish(ctx, "n", make([]byte, 5_000))
		cancel()
		<-canceled
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err == nil {
			if err := d.Unpublish(t.Context(), "n"); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := l.Find(t.Context(), proc(1)); err != nil { // The request in progress is complete.
			t.Fatal(err)
		}
		if left := s.Names(); len(left) > 0 {
			t.Fatalf("left behind: %d", len(left))
		}
	}
}
