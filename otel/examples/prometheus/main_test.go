package main

import (
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A single rank sends to itself, so that it has all metrics.
func TestPrometheus_ReadsEveryMetric(t *testing.T) {
	var out strings.Builder
	if err := run(0, 0, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`ferry_messages_total{ferry_direction="sent",ferry_peer_rank="0",ferry_rank="0",ferry_transport="self",.*} [1-9]`,
		`ferry_payload_bytes_total{ferry_direction="received",.*} [1-9]`,
		`ferry_receive_wait_seconds_total{ferry_peer_rank="0",.*} [0-9]`,
		`ferry_messages_unexpected_total{`,
		`ferry_messages_dropped_total{`,
		`ferry_reconnects_total{`,
		`ferry_frames_resent_total{`,
		`ferry_collective_duration_seconds_count{ferry_collective_operation="allreduce",.*} 1`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

func TestPort_InUse_IsError(t *testing.T) {
	if err := run(-5, 0, nil); err == nil {
		t.Error("port -5 is free")
	}
}
