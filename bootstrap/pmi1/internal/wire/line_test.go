package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/framework"
)

func TestQuote_Value_IsShortened(t *testing.T) {
	secret := strings.Repeat("5ec2e7", 100)
	for _, line := range []string{"cmd=x port=" + secret, "cmd=x value=" + secret, secret, "cmd=x " + secret} {
		if q := Quote(line); strings.Count(q, "5ec2e7") > 3 {
			t.Errorf("%s quotes a secret", q)
		}
	}
}

// Any line is an error, or its fields can be read.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0", "cmd=set size=4", "cmd=", "cmd", "", " ", "cmd=x =", "=",
		"cmd=x a=b=c a", "cmd=x cmd=y", "cmd=x rc= info=fail", "cmd=x \x00", "cmd=lookup_result port=\xff", "mcmd=spawn",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		if l.Cmd == "" || strings.ContainsAny(l.Cmd, " \n") || !strings.HasPrefix(strings.TrimLeft(text, " "), "cmd="+l.Cmd) {
			t.Errorf("%q: command %q", text, l.Cmd)
		}
		_, _, _ = l.IsRefused(), l.String(), Quote(text)
		for _, fld := range l.fields {
			if v, ok := l.Value(fld.key); !ok || v != fld.value || !strings.Contains(text, fld.key+"="+fld.value) {
				t.Errorf("%q: %s is %q, %t", text, fld.key, v, ok)
			}
			if n, err := l.Number(fld.key, 1, 9); err == nil && (n < 1 || n > 9) {
				t.Errorf("%q: %s is %d", text, fld.key, n)
			}
			if isRepresentable(fld.value) && !strings.Contains(fld.key, "\\") && len(text) < MaxRequest/2 {
				again, err := formatRequest(l.Cmd, fld.key, fld.value)
				if err != nil {
					t.Errorf("%q can't be said: %v", text, err)
				} else if back, err := Parse(strings.TrimSuffix(again, "\n")); err != nil || back.Cmd != l.Cmd {
					t.Errorf("%q: %q, %v", text, back.Cmd, err)
				}
			}
		}
	})
}

// Whatever a server sends, requests end without a panic.
func FuzzServer(f *testing.F) {
	f.Add([]byte("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64\n"))
	f.Add([]byte("cmd=get_result value=segments=2\ncmd=get_result value=a\ncmd=get_result\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		c := New(ours, time.Minute, func(error) {})
		served := make(chan struct{})
		go func() {
			defer close(served)
			defer theirs.Close()
			one := make([]byte, MaxRequest)
			for line := range strings.Lines(string(b)) {
				if _, err := theirs.Read(one); err != nil {
					return
				}
				theirs.Write([]byte(line))
			}
		}()
		c.limits = minLimits
		c.kvsName = "kvs"
		c.Get(t.Context(), "key")
		c.Lookup(t.Context(), "s")
		c.Init(t.Context())
		c.Identify(t.Context(), 1)
		if err := c.Finalize(t.Context()); err != nil && !errors.Is(err, framework.ErrTransport) {
			t.Error(err)
		}
		<-served
	})
}

// pair returns a client with a server that sends only what the test writes.
func pair(t *testing.T, timeout time.Duration) (*Client, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	c := New(ours, timeout, func(error) {})
	t.Cleanup(func() { c.Close(); theirs.Close() })
	return c, theirs
}

func TestCall_SilentServer_IsErrTimeout(t *testing.T) {
	c, theirs := pair(t, 10*time.Millisecond)
	go io.Copy(io.Discard, theirs)
	_, _, err := c.Lookup(t.Context(), "s")
	if !errors.Is(err, framework.ErrTimeout) || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "cmd=lookup_name service=s") {
		t.Errorf("got %v", err)
	}
	if _, _, again := c.Lookup(t.Context(), "t"); again == nil || again.Error() != err.Error() {
		t.Errorf("afterwards: %v, want the first cause", again)
	}
}

// The late answer must not be taken for that of the next request.
func TestCall_IsCanceled_NextCallSucceeds(t *testing.T) {
	c, theirs := pair(t, time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	asked := make(chan struct{})
	go func() {
		b := make([]byte, MaxRequest)
		theirs.Read(b)
		cancel(why)
		<-asked
		theirs.Write([]byte("cmd=lookup_result port=first rc=0\n"))
		theirs.Read(b)
		theirs.Write([]byte("cmd=lookup_result port=second rc=0\n"))
	}()
	if _, _, err := c.Lookup(ctx, "s"); !errors.Is(err, why) {
		t.Errorf("canceled: %v", err)
	}
	waiting, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := c.Lookup(waiting, "s"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled before its turn: %v", err)
	}
	close(asked)
	if port, ok, err := c.Lookup(t.Context(), "t"); port != "second" || !ok || err != nil {
		t.Errorf("afterwards: %q, %t, %v", port, ok, err)
	}
}

// The server may still read the request.
func TestAbort_SilentServer_DoesNotBlock(t *testing.T) {
	c, theirs := pair(t, time.Hour)
	lines := make(chan string)
	go func() {
		defer close(lines)
		b := make([]byte, MaxRequest)
		for {
			n, err := theirs.Read(b)
			if err != nil {
				return
			}
			lines <- string(b[:n])
		}
	}()
	looked := make(chan error)
	go func() { _, _, err := c.Lookup(t.Context(), "s"); looked <- err }()
	<-lines
	aborted := make(chan error)
	go func() { aborted <- c.Abort(t.Context(), 3) }()
	if got := <-lines; got != "cmd=abort exitcode=3\n" {
		t.Errorf("the server hears %q", got)
	}
	if err := <-aborted; err != nil {
		t.Error(err)
	}
	c.Close()
	if err := <-looked; !errors.Is(err, framework.ErrTransport) {
		t.Errorf("the other call: %v", err)
	}
	if err := c.Abort(t.Context(), 1); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for range lines {
	}
}
