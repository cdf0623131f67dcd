package mpi

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

func TestDumpShowsWhatEachSideWaitsFor(t *testing.T) {
	var many []pml.Pending
	for i := range most + 5 {
		many = append(many, pml.Pending{Peer: 3, Tag: i, Bytes: 8, State: "offered"})
	}
	var b strings.Builder
	writeInspection(&b, pml.Inspection{Parked: 2, Comms: []pml.CommInspection{{
		ID: cid.Extended{Base: 0x2a}, Name: "halo", Local: cid.MakeLocal(4, 1),
		Posted: []pml.Pending{{Peer: AnySource, Tag: AnyTag, Bytes: 100, Plane: pml.Collective, State: "posted"}},
		Sends:  many,
	}}})
	for _, want := range []string{
		`communicator 2a "halo", local id 4.1`, "from any rank, tag any, 100 bytes, collective, posted",
		"to 3, tag 19, 8 bytes, point to point, offered", "and 5 more", "2 messages for communicators that don't exist here yet",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "tag 20") || strings.Contains(b.String(), "messages that wait:") {
		t.Errorf("too much in\n%s", b.String())
	}
}
