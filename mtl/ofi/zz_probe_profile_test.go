package ofi_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/mtl/mtltest"
)

func TestZZ(t *testing.T) {
	for _, f := range strings.Split(os.Getenv("ZZ"), " ") {
		t.Run(f, func(t *testing.T) {
			p, fault, _ := strings.Cut(f, "/")
			layout, fault, _ := strings.Cut(fault, "/")
			mtltest.Cases(profile(t, p, layout, "auto", fault)).Run(t)
		})
	}
}
