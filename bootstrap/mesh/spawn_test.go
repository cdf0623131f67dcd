package mesh

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func TestHandOver_OverTheLimits_IsErrUnsupported(t *testing.T) {
	e := entry{nonce: 1}
	good := HandOver{Namespace: "job", FirstRank: 2, Size: 3, MaxSize: 8, Entry: e.encode()}
	for what, change := range map[string]func(*HandOver){
		"no namespace":     func(h *HandOver) { h.Namespace = "" },
		"a long namespace": func(h *HandOver) { h.Namespace = strings.Repeat("n", bootstrap.MaxName+1) },
		"a long entry":     func(h *HandOver) { h.Entry = make([]byte, MaxEntry+1) },
	} {
		h := good
		change(&h)
		if _, err := h.Encode(); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// FuzzDecodeHandOver decodes bytes that a launcher hands over.
func FuzzDecodeHandOver(f *testing.F) {
	e := entry{key: [keySize]byte{1}, nonce: 7, hostID: 9}
	for _, h := range []HandOver{
		{Namespace: "job", FirstRank: 2, Size: 3, MaxSize: 8, Entry: e.encode()},
		{Namespace: "job", FirstRank: 0, Size: 3, MaxSize: 8, Entry: e.encode()},
		{Namespace: "job", FirstRank: 1 << 40, Size: 3, MaxSize: 8, Entry: e.encode()},
		{Namespace: "job", FirstRank: 1, Size: -1, MaxSize: 8},
	} {
		b, err := h.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHandOver(b)
		if err != nil {
			if !errors.Is(err, framework.ErrConfig) {
				t.Errorf("%v is not ErrConfig", err)
			}
			return
		}
		again, err := h.Encode()
		if err != nil {
			t.Fatalf("encode of %+v: %v", h, err)
		}
		if got, err := DecodeHandOver(again); err != nil || got.FirstRank != h.FirstRank || got.Size != h.Size || got.MaxSize != h.MaxSize || got.Namespace != h.Namespace || !bytes.Equal(got.Entry, h.Entry) {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
	})
}
