package pmix

import (
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/pmixc"
)

func TestAttack_LibraryFileOfAnotherUser_IsNotLoaded(t *testing.T) {
	if err := pmixc.Built(); err != nil {
		t.Skip(err)
	}
	file := attacktest.Library(t)
	under(t, "tcp4://127.0.0.1:1")
	probe(t, &Params{Library: file}, framework.StatusUnavailable, "belongs to user 65534", "LD_LIBRARY_PATH")
}
