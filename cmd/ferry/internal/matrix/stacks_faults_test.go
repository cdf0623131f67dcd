package matrix_test

import (
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/needs"
)

// fault is a broken transport, and the case that finds it.
type fault struct {
	stack, found string
	status       report.Status
	says         string
}

// limit is the time limit of a case. A session over libfabric opens in a second, or in five beside the tests of four other
// packages.
const limit = "20s"

// find runs the stacks and the sound one beside them, and expects every fault to be
// found where it should be, by name.
func find(t *testing.T, sound, cases string, faults []fault) {
	list := sound
	for _, f := range faults {
		list += "," + f.stack
	}
	r := start(t, nil, "matrix", "--components", list, "--cases", cases, "--timeout", limit, "--json", "$JSON").wait(1)
	for _, f := range faults {
		expect(t, r, f.stack, f.found, f.status, f.says)
	}
	passes(t, r, sound, 2)
}

func TestMatrix_FaultsBelowOb1_AreFoundAndNamed(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	const frames, message = "btltest/FramesOfEverySizeArriveWholeAndInOrder", "conform/2/message/every size arrives whole"
	find(t, "ob1+shm", "^"+frames+"|^"+message, []fault{
		{"ob1+drop", frames, report.Fail, "is missing"},
		{"ob1+duplicate", frames, report.Fail, "arrived twice"},
		{"ob1+reorder", frames, report.Fail, "arrived after frame"},
		{"ob1+corrupt", frames, report.Fail, "got "},
		{"ob1+hang", frames, report.Timeout, "did not end within " + limit},
		{"ob1+hang_open", report.OpenCase, report.Timeout, "did not end within " + limit},
		{"ob1+crash", frames, report.Fail, segv},
		{"ob1+crash", message, report.Fail, segv},
	})
}

func TestMatrix_FaultsBelowCm_AreFoundAndNamed(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	needLibfabric(t)
	const late = "mtltest/LateReceiversGetWhatEachSentInOrder"
	find(t, "cm+ofi tcp;ofi_rxm", "^"+late, []fault{
		{"cm+drop", late, report.Fail, "were sent, and"},
		{"cm+duplicate", late, report.Fail, "were sent, and"},
		{"cm+reorder", late, report.Fail, "were sent, and"},
		{"cm+corrupt", late, report.Fail, "arrived changed"},
		{"cm+hang", late, report.Timeout, "did not end within " + limit},
		{"cm+hang_open", report.OpenCase, report.Timeout, "did not end within " + limit},
		{"cm+crash", late, report.Fail, segv},
	})
}
